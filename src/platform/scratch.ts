import { readFileSync, readlinkSync } from 'node:fs';
import { mkdtemp, readdir, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';

/** Whose work it is that the folder holds. */
export type ScratchOf = 'retention' | 'export';

const PREFIX = 'penstock-';
/** Of a process that cannot be looked up, as that of another container: nobody takes a day for a file. */
const LEFT_MS = 86_400_000;
const NAME = /^penstock-(?:retention|export)-(\d+)-(\d+)-(\d+)-[A-Za-z0-9]{6}$/;

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

/** A folder for nobody else, whose name says whose it is. */
export function makeScratch(of: ScratchOf): Promise<string> {
  const pid = String(process.pid);
  const owner: Owner = { space: spaceOfIds() ?? '0', pid, started: startOf(pid) ?? '0' };
  return mkdtemp(path.join(tmpdir(), `${PREFIX}${of}-${owner.space}-${owner.pid}-${owner.started}-`));
}

/** Removes the folders of processes that are surely dead, killed as they wrote or read a large file. */
export async function tidyScratch(): Promise<void> {
  const space = spaceOfIds();
  for (const name of await readdir(tmpdir())) {
    const [, ofSpace, pid, started] = NAME.exec(name) ?? [];
    if (pid === undefined) continue;
    const folder = path.join(tmpdir(), name);
    const isDead = ofSpace === space && startOf(pid) !== started;
    if (isDead || (ofSpace !== space && (await isLeft(folder))))
      // Those of another user are left to that user.
      await rm(folder, { recursive: true, force: true }).catch(() => {});
  }
}

async function isLeft(folder: string): Promise<boolean> {
  const found = await stat(folder).catch(() => undefined);
  return found !== undefined && found.mtimeMs < Date.now() - LEFT_MS;
}
