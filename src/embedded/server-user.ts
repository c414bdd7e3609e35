import { execFileSync, spawnSync } from 'node:child_process';
import { statSync } from 'node:fs';

interface Ids {
  uid: number;
  gid: number;
}

/** How to start a program of Postgres, which refuses to run as root. */
export interface ServerUser {
  /** Who must own the cluster; absent: whoever runs this process. */
  owner?: Ids;
  /** To give to `spawn`; empty where nothing changes or `prefix` does it. */
  ids: Ids | Record<string, never>;
  /** Put before the command line. */
  prefix: string[];
}

/**
 * As a normal user: that user. As root: whoever owns the cluster, else the system's user `postgres`, else
 * `nobody`; no user is created. Root's own folders (/root, a `mktemp -d`) are closed to them: there
 * the program keeps one privilege of root's, to pass through folders, by way of `setpriv`.
 * @param cluster the folder of the cluster, which need not exist; `program` and `home` are what the user must reach.
 * @throws {Error} saying what to do when the user cannot reach them.
 */
export function chooseServerUser(cluster: string, program: string, home: string): ServerUser {
  if (process.getuid?.() !== 0) return { ids: {}, prefix: [] };
  const owner = ownerOf(cluster) ?? idsOf('postgres') ?? idsOf('nobody');
  if (!owner)
    throw new Error('Postgres does not run as root, and there is neither a user postgres nor nobody');

  const command = ['/bin/sh', '-c', 'test -x "$0" && cd "$1"', program, home];
  if (succeeds(command, owner)) return { owner, ids: owner, prefix: [] };
  const prefix = [
    'setpriv',
    `--reuid=${owner.uid}`,
    `--regid=${owner.gid}`,
    '--clear-groups',
    '--inh-caps=+dac_override',
    '--ambient-caps=+dac_override',
    // Without it access(2), by which Postgres looks for its own files, would not honour the privilege.
    '--securebits=+no_setuid_fixup',
  ];
  if (succeeds([...prefix, ...command])) return { owner, ids: {}, prefix };
  throw new Error(
    `Postgres does not run as root, and user ${owner.uid} cannot reach ${program} and ${home}: ` +
      'move them to a folder that others may pass through, or run npm start as another user',
  );
}

function succeeds(command: string[], ids: object = {}): boolean {
  const [file, ...args] = command;
  return spawnSync(file!, args, { ...ids, cwd: '/', stdio: 'ignore' }).status === 0;
}

function ownerOf(folder: string): Ids | undefined {
  const found = statSync(folder, { throwIfNoEntry: false });
  return found && found.uid !== 0 ? { uid: found.uid, gid: found.gid } : undefined;
}

function idsOf(user: string): Ids | undefined {
  try {
    const id = (flag: string) =>
      Number(execFileSync('id', [flag, user], { encoding: 'utf8', stdio: 'pipe' }));
    return { uid: id('-u'), gid: id('-g') };
  } catch {
    return undefined;
  }
}
