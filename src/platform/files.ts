import { createReadStream, existsSync, readFileSync, readlinkSync } from 'node:fs';
import { type FileHandle, mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder that contains package.json, prisma/ and the Procfile, for the sources and for dist/ alike. */
export const packageRoot = findUp(import.meta.dirname);

function findUp(folder: string): string {
  if (existsSync(path.join(folder, 'package.json'))) return folder;
  const parent = path.dirname(folder);
  if (parent === folder) throw new Error(`no package.json above ${import.meta.dirname}`);
  return findUp(parent);
}

/**
 * The command that starts everything on this machine, for messages. It depends on whether Penstock is a clone
 * or an installed package.
 */
export const START_COMMAND = packageRoot.split(path.sep).includes('node_modules')
  ? 'npx penstock start'
  : 'npm start';

/** The version in package.json. */
export const packageVersion: string = JSON.parse(
  readFileSync(path.join(packageRoot, 'package.json'), 'utf8'),
).version;

/**
 * Creates a folder and its missing parents, one after the other. `mkdir` with `recursive` never ends where no
 * folder can be created, for example in /proc.
 * @returns the topmost folder that was created; undefined if all of them existed
 * @throws the system error; ENOENT where no folder can be created
 */
export async function makeFolders(
  folder: string,
  { mode }: { mode?: number } = {},
): Promise<string | undefined> {
  const missing: string[] = [];
  for (let above = path.resolve(folder); !(await exists(above)); above = path.dirname(above))
    missing.unshift(above);
  for (const one of missing) {
    try {
      await mkdir(one, { mode });
    } catch (error) {
      // Another process may have created the folder meanwhile.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !(await exists(one))) throw error;
    }
  }
  return missing[0];
}

async function exists(name: string): Promise<boolean> {
  try {
    await stat(name);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/**
 * Reads a file in chunks. The first read opens the file: a stream that is opened earlier and never read would
 * emit an unhandled error, which ends the process.
 */
export async function* readChunks(file: string): AsyncGenerator<Uint8Array> {
  yield* createReadStream(file);
}

/** Returns the path of a `file:` URL, or undefined if the URL is not a valid `file:` URL. */
export function pathOfUrl(url: string): string | undefined {
  try {
    return fileURLToPath(url);
  } catch {
    return undefined;
  }
}

/** The file that `penstock export` writes last. A folder with this file contains a complete export. */
export const MANIFEST = 'manifest.json';

/** The file that marks an export that has not finished and can be resumed. */
export const UNFINISHED = 'unfinished.json';

/**
 * Milliseconds after which the folder of a process that cannot be looked up (for example, of another
 * container) counts as abandoned. Reading or writing one file never takes a day.
 */
const ABANDONED_AFTER_MS = 86_400_000;

/**
 * The process that owns a folder. Process ids are reused, so the start time and the PID namespace identify
 * the process as well.
 */
interface Owner {
  space: string;
  pid: string;
  started: string;
}

/** Returns the id of the PID namespace of this process; undefined where /proc does not exist. */
function spaceOfIds(): string | undefined {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))![0];
  } catch {
    return undefined;
  }
}

/** Returns the start time of a process in clock ticks since boot; undefined if there is no such process. */
function startOf(pid: string): string | undefined {
  try {
    const status = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of the program, in parentheses, may contain any character.
    return status.slice(status.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}

interface ScratchFolders {
  /** Creates a private folder in the temporary folder of the system. Its name identifies this process. */
  make(): Promise<string>;
  /** Removes the folders of processes that ended without removing them. */
  tidy(): Promise<void>;
}

/** @param purpose a word of lower-case letters. No other purpose may begin with this word and a hyphen */
export function scratchFolders(purpose: string): ScratchFolders {
  const prefix = `penstock-${purpose}-`;
  const named = new RegExp(`^${prefix}(\\d+)-(\\d+)-(\\d+)-[A-Za-z0-9]{6}$`);
  return {
    make() {
      const pid = String(process.pid);
      const owner: Owner = { space: spaceOfIds() ?? '0', pid, started: startOf(pid) ?? '0' };
      return mkdtemp(path.join(tmpdir(), `${prefix}${owner.space}-${owner.pid}-${owner.started}-`));
    },
    async tidy() {
      const space = spaceOfIds();
      for (const name of await readdir(tmpdir())) {
        const [, ofSpace, pid, started] = named.exec(name) ?? [];
        if (pid === undefined) continue;
        const folder = path.join(tmpdir(), name);
        const isDead = ofSpace === space && startOf(pid) !== started;
        if (isDead || (ofSpace !== space && (await isAbandoned(folder))))
          // A folder of another user cannot be removed and is kept.
          await rm(folder, { recursive: true, force: true }).catch(() => {});
      }
    },
  };
}

async function isAbandoned(folder: string): Promise<boolean> {
  const stats = await stat(folder).catch(() => undefined);
  return stats !== undefined && stats.mtimeMs < Date.now() - ABANDONED_AFTER_MS;
}

/** Reads bytes at an offset of a file. At the end of the file, fewer bytes are returned. */
export async function readAt(handle: FileHandle, at: number, bytes: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(bytes), 0, bytes, at);
  return buffer.subarray(0, bytesRead);
}
