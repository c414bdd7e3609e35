import { mkdir, mkdtemp, readdir, rm } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';

const PREFIX = 'penstock-rows-';
const own = new Set<string>();

export interface Scratch {
  path: string;
  /** Where input files are, or links to them: the one place that a statement may read. */
  inputs: string;
  remove(): Promise<void>;
}

/** A new folder under the system's temporary one, for nobody else to read. */
export async function createScratch(): Promise<Scratch> {
  await removeLeftOvers();
  const folder = await mkdtemp(path.join(tmpdir(), `${PREFIX}${hostname()}-${process.pid}-`));
  own.add(folder);
  const inputs = path.join(folder, 'inputs');
  await mkdir(inputs, { mode: 0o700 });
  return {
    path: folder,
    inputs,
    async remove() {
      await rm(folder, { recursive: true, force: true });
      own.delete(folder);
    },
  };
}

/** Those of processes of this host that have been killed. In a container, the successor has the same number. */
async function removeLeftOvers(): Promise<void> {
  const ofHost = `${PREFIX}${hostname()}-`;
  for (const name of await readdir(tmpdir())) {
    const folder = path.join(tmpdir(), name);
    if (!name.startsWith(ofHost) || own.has(folder)) continue;
    const pid = Number.parseInt(name.slice(ofHost.length), 10);
    if (pid !== process.pid && isAlive(pid)) continue;
    await rm(folder, { recursive: true, force: true }).catch(() => {});
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
