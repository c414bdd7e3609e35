import { constants } from 'node:fs';
import { type FileHandle, lstat, open, opendir, readlink, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { type FileFormat, type FolderDefinition, SourceError } from '../source.ts';
import { copyIn, type Scratch } from './scratch.ts';

/** Flags that do not follow a link at the end of the path and do not wait for the writer of a FIFO. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

interface Inside {
  /** Folder that must contain the file, as returned by `realpath`. */
  root: string;
  /** Owner of the folder. */
  owner: number;
  /** Path of the file, as returned by `realpath`. */
  target: string;
  /** Path as the owner knows it. */
  name: string;
}

interface OpenedFile {
  handle: FileHandle;
  bytes: number;
}

/**
 * Opens a file once and checks the opened file. Its path may point elsewhere before or after, so it is not
 * used again.
 * @throws {SourceError} `failed` if the file was replaced meanwhile; `config` if it may not be read
 */
export async function openInside({ root, owner, target, name }: Inside): Promise<OpenedFile> {
  const handle = await open(target, FLAGS).catch((error: NodeJS.ErrnoException) => {
    const exchanged = error.code === 'ELOOP' || error.code === 'ENOENT';
    throw exchanged
      ? exchangedWhile(name, error)
      : new SourceError('config', `${name} cannot be read: ${error.code}`, { cause: error });
  });
  try {
    const { size, nlink, uid } = await check(handle, { root, target, name });
    // A user who may write to the folder could hard-link a file that the user cannot read.
    if (nlink > 1 && uid !== owner) {
      throw new SourceError(
        'config',
        `${name} was skipped: it has ${nlink} hard links and another owner than the folder; replace it by a copy`,
      );
    }
    return { handle, bytes: size };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function check(
  handle: FileHandle,
  { root, target, name }: Pick<Inside, 'root' | 'target' | 'name'>,
): Promise<{ size: number; nlink: number; uid: number }> {
  const stats = await handle.stat();
  const currentPath = await pathOfOpened(handle, target);
  if (stats.isFile() && currentPath?.startsWith(root + path.sep)) return stats;
  throw exchangedWhile(name);
}

/**
 * Returns the path of an opened file. Linux reports it for the descriptor. On other systems the path is
 * resolved once more and must lead to the same file.
 */
async function pathOfOpened(handle: FileHandle, target: string): Promise<string | undefined> {
  if (process.platform === 'linux') return readlink(`/proc/self/fd/${handle.fd}`);
  const currentPath = await realpath(target).catch(() => undefined);
  if (currentPath === undefined) return undefined;
  const [opened, now] = await Promise.all([handle.stat(), lstat(currentPath).catch(() => undefined)]);
  return opened.dev === now?.dev && opened.ino === now.ino ? currentPath : undefined;
}

function exchangedWhile(name: string, cause?: unknown): SourceError {
  return new SourceError('failed', `${name} was replaced while it was being opened, so it was not read`, {
    cause,
  });
}

/** A file to read. */
export interface InputFile {
  /** Path as the owner knows it. */
  name: string;
  /**
   * Path in the scratch folder, with a generated name. The owner's name never becomes part of a statement or
   * a pattern.
   */
  path: string;
  /** Number of records before a piece of a CSV file, without the header. */
  recordsBefore?: number;
  /** Offset of a quote that is never closed; absent if the file has none. */
  openQuote?: number;
}

const endings: Record<FileFormat, string[]> = {
  csv: ['.csv', '.csv.gz'],
  ndjson: ['.ndjson', '.jsonl', '.json', '.ndjson.gz', '.jsonl.gz', '.json.gz'],
  parquet: ['.parquet'],
};

/** Maximum files of a source. Other programs create them, and each takes some memory and time. */
export const MAX_FILES = 100_000;
/** Maximum entries of a folder and its subfolders that are read, whatever their extension. */
const MAX_ENTRIES = 1_000_000;

/**
 * Returns whether a path has an extension of the format. Names that begin with a dot or an underscore do not
 * match, because many programs use them for unfinished files.
 */
export function isOfFormat(name: string, format: FileFormat): boolean {
  if (name.split('/').some((part) => /^[._]/.test(part))) return false;
  return endings[format].some((ending) => name.toLowerCase().endsWith(ending));
}

/** Returns whether a file is decompressed while it is copied into the scratch folder. */
export function isPacked(name: string, format: FileFormat): boolean {
  return format !== 'parquet' && name.toLowerCase().endsWith('.gz');
}

/** Returns the path in the scratch folder of the input file with this index. */
export function inputPath(scratch: Scratch, index: number, format: FileFormat): string {
  return path.join(scratch.inputs, `${index}.${format}`);
}

/**
 * Copies the files of a definition into the scratch folder, decompressed: one file, or the files of the
 * format in a folder and its subfolders, by name. Links that lead out of the folder are ignored.
 * @throws {SourceError} `config` if there is no file, or one cannot be read; `failed` if a file changes
 * meanwhile
 */
export async function copyFiles(
  definition: FolderDefinition,
  scratch: Scratch,
  signal?: AbortSignal,
): Promise<InputFile[]> {
  const { root, owner, files } = await findFiles(definition);
  if (files.length === 0) {
    throw new SourceError(
      'config',
      `${definition.path}: no file of the format ${definition.format} was found (${endings[definition.format].join(', ')})`,
    );
  }
  const copies: InputFile[] = [];
  for (const { name, target } of files) {
    signal?.throwIfAborted();
    const to = inputPath(scratch, copies.length, definition.format);
    const opened = await openInside({ root, owner, target, name });
    try {
      await copy(opened, { name, to, packed: isPacked(name, definition.format), scratch, signal });
    } catch (error) {
      signal?.throwIfAborted();
      if (error instanceof SourceError) throw error;
      throw new SourceError('failed', `${name} cannot be read: ${(error as Error).message}`, {
        cause: error,
      });
    } finally {
      await opened.handle.close();
    }
    copies.push({ name, path: to });
  }
  return copies;
}

interface Copying {
  name: string;
  to: string;
  packed: boolean;
  scratch: Scratch;
  signal: AbortSignal | undefined;
}

/**
 * Copies the bytes that the file had when it was opened. Bytes that are appended later are left for the next
 * run.
 */
async function copy({ handle, bytes }: OpenedFile, { scratch, ...copying }: Copying): Promise<void> {
  const before = await handle.stat();
  if (bytes > 0) {
    const from = handle.createReadStream({
      start: 0,
      end: bytes - 1,
      autoClose: false,
      highWaterMark: 262_144,
    });
    await copyIn(scratch, { ...copying, from });
  } else await copyIn(scratch, { ...copying, packed: false, from: Readable.from([]) });
  const after = await handle.stat();
  const grown = after.size > before.size;
  if (after.size < before.size || (after.mtimeMs !== before.mtimeMs && !grown)) {
    throw new SourceError(
      'failed',
      `${copying.name} changed while it was being read; write files in another folder and then rename them`,
    );
  }
}

interface Found {
  root: string;
  owner: number;
  files: { name: string; target: string }[];
}

async function findFiles({ path: given, format }: FolderDefinition): Promise<Found> {
  try {
    const real = await realpath(given);
    if (!(await stat(real)).isDirectory()) return await findOne(given, real);
    const names = (await namesIn(real, given))
      .filter((name) => isOfFormat(name.split(path.sep).join('/'), format))
      .sort();
    if (names.length > MAX_FILES) {
      throw new SourceError(
        'config',
        `${given}: there are more than ${MAX_FILES} files of the format ${format}`,
      );
    }
    const files = [];
    for (const name of names) {
      const target = await realpath(path.join(real, name)).catch(() => undefined);
      if (!target?.startsWith(real + path.sep)) continue;
      // Open regular files only, because opening a device may have an effect.
      if (!(await lstat(target).catch(() => undefined))?.isFile()) continue;
      files.push({ name: path.join(given, name), target });
    }
    return { root: real, owner: (await stat(real)).uid, files };
  } catch (error) {
    if (error instanceof SourceError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new SourceError('config', `${given} cannot be read: ${code}`, { cause: error });
  }
}

/**
 * Returns the file of a definition that names a single file. It may be a link, but only to a file in its
 * folder.
 */
async function findOne(given: string, target: string): Promise<Found> {
  const root = await realpath(path.dirname(given));
  if (!target.startsWith(root + path.sep)) {
    throw new SourceError(
      'config',
      `${given} is a link to a file outside of its folder; use the path of the file itself`,
    );
  }
  if (!(await stat(target)).isFile())
    throw new SourceError('config', `${given} is neither a file nor a folder`);
  return { root, owner: (await stat(root)).uid, files: [{ name: given, target }] };
}

async function namesIn(root: string, given: string): Promise<string[]> {
  const names: string[] = [];
  const folders = [''];
  let entries = 0;
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for await (const entry of await opendir(path.join(root, folder))) {
      entries += 1;
      if (entries > MAX_ENTRIES) {
        throw new SourceError('config', `${given}: there are more than ${MAX_ENTRIES} files and folders`);
      }
      const name = path.join(folder, entry.name);
      if (entry.isDirectory()) folders.push(name);
      else names.push(name);
    }
  }
  return names;
}
