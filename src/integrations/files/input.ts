import { constants } from 'node:fs';
import { type FileHandle, lstat, open, opendir, readlink, realpath, stat } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { type FileFormat, type FolderDefinition, SourceError } from '../source.ts';
import { bringIn, type Scratch } from './scratch.ts';

/** Neither follows a link at the end of the path, nor waits for a writer of a FIFO. */
const FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

export interface Inside {
  /** Folder that the file has to be in, as `realpath` gives it. */
  root: string;
  /** Owner of the folder. */
  owner: number;
  /** As `realpath` has given it. */
  target: string;
  /** As the owner knows it. */
  name: string;
}

interface OpenedFile {
  handle: FileHandle;
  bytes: number;
}

/**
 * Opens a file once and judges what has been opened. Its path may lead elsewhere before or after: nobody asks it again.
 * @throws {SourceError} `failed` when it was exchanged meanwhile; `config` when it may not be read
 */
export async function openInside({ root, owner, target, name }: Inside): Promise<OpenedFile> {
  const handle = await open(target, FLAGS).catch((error: NodeJS.ErrnoException) => {
    const exchanged = error.code === 'ELOOP' || error.code === 'ENOENT';
    throw exchanged
      ? exchangedWhile(name, error)
      : new SourceError('config', `${name} cannot be read: ${error.code}`, { cause: error });
  });
  try {
    const { size, nlink, uid } = await judge(handle, { root, target, name });
    // Whoever fills the folder may be able to name a file that they cannot read.
    if (nlink > 1 && uid !== owner) {
      throw new SourceError(
        'config',
        `${name} was skipped: it has ${nlink} hard links and another owner than the folder; put a copy there`,
      );
    }
    return { handle, bytes: size };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

async function judge(
  handle: FileHandle,
  { root, target, name }: Pick<Inside, 'root' | 'target' | 'name'>,
): Promise<{ size: number; nlink: number; uid: number }> {
  const found = await handle.stat();
  const place = await placeOf(handle, target);
  if (found.isFile() && place?.startsWith(root + path.sep)) return found;
  throw exchangedWhile(name);
}

/**
 * Where an opened file is. Linux says it of the descriptor itself; elsewhere the path is looked at once more, and has to
 * lead to the very same file.
 */
async function placeOf(handle: FileHandle, target: string): Promise<string | undefined> {
  if (process.platform === 'linux') return readlink(`/proc/self/fd/${handle.fd}`);
  const place = await realpath(target).catch(() => undefined);
  if (place === undefined) return undefined;
  const [opened, now] = await Promise.all([handle.stat(), lstat(place).catch(() => undefined)]);
  return opened.dev === now?.dev && opened.ino === now.ino ? place : undefined;
}

function exchangedWhile(name: string, cause?: unknown): SourceError {
  return new SourceError('failed', `${name} was replaced while it was being opened, so it was not read`, {
    cause,
  });
}

/** A file to read. */
export interface InputFile {
  /** As the owner knows it. */
  name: string;
  /** In the scratch folder, under a name of ours: the owner's never becomes part of a statement or a pattern. */
  path: string;
  /** Of a piece of a CSV file: the records before it, without the header. */
  recordsBefore?: number;
  /** Of one that ends in a quote that is never closed: the byte of the file at which it opens. */
  openQuote?: number;
}

const endings: Record<FileFormat, string[]> = {
  csv: ['.csv', '.csv.gz'],
  ndjson: ['.ndjson', '.jsonl', '.json', '.ndjson.gz', '.jsonl.gz', '.json.gz'],
  parquet: ['.parquet'],
};

/** Files of one source. Somebody else makes them, and each takes a little memory and time. */
export const MOST_FILES = 100_000;
/** Names in a folder and its folders that are looked at, whatever they end in. */
const MOST_NAMES = 1_000_000;

/** Whether a path has the format's ending. What begins with a dot or an underscore is somebody's unfinished work. */
export function isOfFormat(name: string, format: FileFormat): boolean {
  if (name.split('/').some((part) => /^[._]/.test(part))) return false;
  return endings[format].some((ending) => name.toLowerCase().endsWith(ending));
}

/** Whether it is unpacked on its way into the scratch folder. */
export function isPacked(name: string, format: FileFormat): boolean {
  return format !== 'parquet' && name.toLowerCase().endsWith('.gz');
}

/** Where the input file number `index` of the scratch folder is. */
export function inputPath(scratch: Scratch, index: number, format: FileFormat): string {
  return path.join(scratch.inputs, `${index}.${format}`);
}

/**
 * Copies the definition's files into the scratch folder, unpacked: one file, or a folder's and its folders' files of the
 * format, by name. A link that leads out of the folder is passed over.
 * @throws {SourceError} `config` when there is none, or one may not be read; `failed` when one changes meanwhile
 */
export async function copyFiles(
  definition: FolderDefinition,
  scratch: Scratch,
  signal?: AbortSignal,
): Promise<InputFile[]> {
  const { root, owner, found } = await findFiles(definition);
  if (found.length === 0) {
    throw new SourceError(
      'config',
      `${definition.path}: no file of the format ${definition.format} was found (${endings[definition.format].join(', ')})`,
    );
  }
  const copies: InputFile[] = [];
  for (const { name, target } of found) {
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

/** What is written behind the bytes that were there at its opening is for the next run. */
async function copy({ handle, bytes }: OpenedFile, { scratch, ...copying }: Copying): Promise<void> {
  const before = await handle.stat();
  if (bytes > 0) {
    const from = handle.createReadStream({
      start: 0,
      end: bytes - 1,
      autoClose: false,
      highWaterMark: 262_144,
    });
    await bringIn(scratch, { ...copying, from });
  } else await bringIn(scratch, { ...copying, packed: false, from: Readable.from([]) });
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
  found: { name: string; target: string }[];
}

async function findFiles({ path: given, format }: FolderDefinition): Promise<Found> {
  try {
    const real = await realpath(given);
    if (!(await stat(real)).isDirectory()) return await findOne(given, real);
    const names = (await namesIn(real, given))
      .filter((name) => isOfFormat(name.split(path.sep).join('/'), format))
      .sort();
    if (names.length > MOST_FILES) {
      throw new SourceError(
        'config',
        `${given}: there are more than ${MOST_FILES} files of the format ${format}`,
      );
    }
    const found = [];
    for (const name of names) {
      const target = await realpath(path.join(real, name)).catch(() => undefined);
      if (!target?.startsWith(real + path.sep)) continue;
      // Nothing but a file is even opened: a device may do something then.
      if (!(await lstat(target).catch(() => undefined))?.isFile()) continue;
      found.push({ name: path.join(given, name), target });
    }
    return { root: real, owner: (await stat(real)).uid, found };
  } catch (error) {
    if (error instanceof SourceError) throw error;
    const { code } = error as NodeJS.ErrnoException;
    throw new SourceError('config', `${given} cannot be read: ${code}`, { cause: error });
  }
}

/** The one file that a definition names: in its folder, though perhaps by a link. */
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
  return { root, owner: (await stat(root)).uid, found: [{ name: given, target }] };
}

async function namesIn(root: string, given: string): Promise<string[]> {
  const names: string[] = [];
  const folders = [''];
  let looked = 0;
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for await (const entry of await opendir(path.join(root, folder))) {
      looked += 1;
      if (looked > MOST_NAMES) {
        throw new SourceError('config', `${given}: there are more than ${MOST_NAMES} files and folders`);
      }
      const name = path.join(folder, entry.name);
      if (entry.isDirectory()) folders.push(name);
      else names.push(name);
    }
  }
  return names;
}
