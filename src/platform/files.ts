import { createReadStream, existsSync, readFileSync, readlinkSync } from 'node:fs';
import { type FileHandle, mkdir, mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { fileURLToPath } from 'node:url';

/** The folder of package.json, prisma/ and the Procfile, from the sources as well as from dist/. */
export const packageRoot = findUp(import.meta.dirname);

function findUp(folder: string): string {
  if (existsSync(path.join(folder, 'package.json'))) return folder;
  const parent = path.dirname(folder);
  if (parent === folder) throw new Error(`no package.json above ${import.meta.dirname}`);
  return findUp(parent);
}

/** Command that starts everything on this machine, for messages: the folder is a clone or an installed package. */
export const START_COMMAND = packageRoot.split(path.sep).includes('node_modules')
  ? 'npx penstock start'
  : 'npm start';

/** The release, as package.json has it. */
export const packageVersion: string = JSON.parse(
  readFileSync(path.join(packageRoot, 'package.json'), 'utf8'),
).version;

/**
 * Makes a folder and those above it that are missing, one after the other. Where nothing can be made, as in /proc,
 * Node's own way of making all of them tries for ever.
 * @returns the first that it has made; undefined: all were there
 * @throws the system's error; ENOENT where nothing can be made
 */
export async function makeFolders(
  folder: string,
  { mode }: { mode?: number } = {},
): Promise<string | undefined> {
  const missing: string[] = [];
  for (let above = path.resolve(folder); !(await isThere(above)); above = path.dirname(above))
    missing.unshift(above);
  for (const one of missing) {
    try {
      await mkdir(one, { mode });
    } catch (error) {
      // Somebody else may have made it meanwhile.
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || !(await isThere(one))) throw error;
    }
  }
  return missing[0];
}

async function isThere(name: string): Promise<boolean> {
  try {
    await stat(name);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

/**
 * Reads a file in chunks. The file is opened by the first read: a stream that is opened earlier and never read reports a
 * failure to nobody, which would end the process.
 */
export async function* readChunks(file: string): AsyncGenerator<Uint8Array> {
  yield* createReadStream(file);
}

/** The path that a `file:` address names; undefined: it names none. */
export function pathOfUrl(url: string): string | undefined {
  try {
    return fileURLToPath(url);
  } catch {
    return undefined;
  }
}

/** What `penstock export` writes last: where it is, the export is whole. */
export const MANIFEST = 'manifest.json';

/** Lies where an export goes on. */
export const UNFINISHED = 'unfinished.json';

/** Of a process that cannot be looked up, as that of another container: nobody takes a day for a file. */
const LEFT_MS = 86_400_000;

/** Who is at work: a process id is given again, so its start and the space of ids that it is of belong to it. */
interface Owner {
  space: string;
  pid: string;
  started: string;
}

/** @returns undefined where there is no /proc */
function spaceOfIds(): string | undefined {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))![0];
  } catch {
    return undefined;
  }
}

/** Ticks since the machine began; undefined: there is no such process. */
function startOf(pid: string): string | undefined {
  try {
    const status = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of the program, in brackets, may hold anything.
    return status.slice(status.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}

interface ScratchFolders {
  /** A folder under the system's temporary one, for nobody else, whose name says whose it is. */
  make(): Promise<string>;
  /** Removes the folders of processes that are surely dead, killed as they wrote or read a file. */
  tidy(): Promise<void>;
}

/** @param purpose a word of small letters, of which no other begins with it and a hyphen */
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
        if (isDead || (ofSpace !== space && (await isLeft(folder))))
          // Those of another user are left to that user.
          await rm(folder, { recursive: true, force: true }).catch(() => {});
      }
    },
  };
}

async function isLeft(folder: string): Promise<boolean> {
  const found = await stat(folder).catch(() => undefined);
  return found !== undefined && found.mtimeMs < Date.now() - LEFT_MS;
}

/** Bytes at a place of a file; fewer at its end. */
export async function readAt(handle: FileHandle, at: number, bytes: number): Promise<Buffer> {
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(bytes), 0, bytes, at);
  return buffer.subarray(0, bytesRead);
}
