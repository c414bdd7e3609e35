import { readFileSync, readlinkSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

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

export interface ScratchFolders {
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
