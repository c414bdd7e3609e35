import { existsSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { type Config, ConfigError, readConfig } from '../../platform/config.ts';
import { packageVersion } from '../../platform/package-root.ts';
import { type Disk, readDisk } from '../../processes/surroundings.ts';

/** What a check has found. `error`: something does not work, or will lose something. `warning`: it may, one day. */
export interface Finding {
  check: string;
  level: 'ok' | 'warning' | 'error';
  finding: string;
  /** What to do about it; null: nothing. */
  advice: string | null;
}

export const ok = (check: string, finding: string): Finding => ({
  check,
  level: 'ok',
  finding,
  advice: null,
});
export const warning = (check: string, finding: string, advice: string): Finding => ({
  ...{ check, level: 'warning', finding, advice },
});
export const error = (check: string, finding: string, advice: string): Finding => ({
  ...{ check, level: 'error', finding, advice },
});

/** The settings of this environment; undefined with a finding that says why they are none. */
export function checkSettings(): { config: Config | undefined; findings: Finding[] } {
  let config: Config;
  try {
    config = readConfig();
  } catch (wrong) {
    if (!(wrong instanceof ConfigError)) throw wrong;
    const advice =
      'Set it as its rule says (docs/settings.md has all of them); nothing else could be looked at.';
    return { config: undefined, findings: [error('settings', wrong.message, advice)] };
  }
  const findings = [...openDoors(config)];
  return { config, findings: findings.length > 0 ? findings : [ok('settings', 'every setting is in order')] };
}

const LOOPBACK = /^(127\.|localhost$|::1$)/;

function* openDoors(config: Config): Iterable<Finding> {
  if (!LOOPBACK.test(config.HOST) && config.METRICS_TOKEN === '')
    yield warning(
      'settings',
      `HOST is ${config.HOST} and METRICS_TOKEN is empty: whoever reaches PORT reads /metrics`,
      'Set METRICS_TOKEN, or close /metrics in the proxy.',
    );
  if (!LOOPBACK.test(config.BOARD_HOST))
    yield warning(
      'settings',
      `BOARD_HOST is ${config.BOARD_HOST}: the dashboard listens beyond this machine`,
      'Have only a proxy with TLS, or a private network, reach it.',
    );
  if (config.MAX_REDIS_MEMORY_PERCENT > 95)
    yield warning(
      'settings',
      `MAX_REDIS_MEMORY_PERCENT is ${config.MAX_REDIS_MEMORY_PERCENT}: near 100 Redis refuses the workers too`,
      'Set it to 95 or less.',
    );
}

/** What runs this command; the fleet's own releases are in its heartbeats. */
export function checkVersions(): Finding[] {
  return [ok('version', `penstock ${packageVersion} on Node ${process.version}`)];
}

/** Parts of a disk that are free: below the first it is time, below the second it is late. */
const LOW = 0.1;
const VERY_LOW = 0.03;

/** The disks that a process of this machine writes to. */
export async function checkDisks({ DATA_DIR }: Config): Promise<Finding[]> {
  const disks = [await readDisk('data', DATA_DIR), await readDisk('tmp', tmpdir())];
  return disks.filter((disk) => disk !== undefined).map(judgeDisk);
}

/** Hosts that are this machine. The folder of a Unix socket is one as well; in a URL its slashes are escaped. */
const HERE = ['', 'localhost', '127.0.0.1', '[::1]'];
const SOCKET = '%2f';

/**
 * The disk of Postgres, where it is one of this machine.
 *
 * @param dataDirectory as Postgres tells it; undefined: the role may not know
 */
export async function checkPostgresDisk(databaseUrl: string, dataDirectory?: string): Promise<Finding> {
  const hostname = URL.canParse(databaseUrl) ? new URL(databaseUrl).hostname : '';
  const onSocket = hostname === '' || hostname.toLowerCase().startsWith(SOCKET);
  if ((onSocket || HERE.includes(hostname)) && dataDirectory) {
    const disk = await readDisk('data', dataDirectory);
    if (disk) return judgeDisk(disk);
  }
  const where = onSocket ? 'Postgres' : `Postgres (${hostname})`;
  return ok('disk', `the disk of ${where} cannot be seen from here: watch it there`);
}

/** By the part of it that is free. */
export function judgeDisk({
  path: folder,
  freeBytes,
  sizeBytes,
}: Pick<Disk, 'path' | 'freeBytes' | 'sizeBytes'>) {
  const free = freeBytes / sizeBytes;
  const found = `${Math.round(free * 1000) / 10} % of the disk of ${path.resolve(folder)} is free (${gigabytes(freeBytes)})`;
  if (free > LOW) return ok('disk', found);
  const advice = 'Make room: see PenstockDiskFilling in docs/runbook.md.';
  return free > VERY_LOW ? warning('disk', found, advice) : error('disk', found, advice);
}

const gigabytes = (bytes: number) => `${Math.round(bytes / 1e8) / 10} GB`;

/** Files that hold secrets, of an embedded installation and of docker compose. */
const secrets = ['password', 'database-url', 'integration-key'];

/** Whether files with secrets are closed to everybody but their owner. */
export function checkFiles({ DATA_DIR }: Config): Finding[] {
  const files = [...secrets.map((name) => path.join(DATA_DIR, name)), '.env'].filter((file) =>
    existsSync(file),
  );
  const open = files.filter((file) => (statSync(file).mode & 0o077) !== 0);
  if (open.length === 0) return [ok('files', 'files with secrets are closed to others')];
  return open.map((file) => {
    const mode = (statSync(file).mode & 0o777).toString(8);
    const judge = file === '.env' ? warning : error;
    return judge(
      'files',
      `${file} has mode ${mode}: others of this machine may read it`,
      `chmod 600 ${file}`,
    );
  });
}
