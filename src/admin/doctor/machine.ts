import { existsSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { MachineReadings, MachineSettings } from '../../checks/readings.ts';
import { type Config, ConfigError, readConfig } from '../../platform/config.ts';
import { type Disk, readDisk } from '../../platform/disk.ts';

/** Reads the settings from the environment. If they are invalid, the reading has the reason, and `config` is absent. */
export function readSettings(): {
  config?: Config;
  reading: Pick<MachineReadings, 'settings' | 'invalidSetting'>;
} {
  try {
    const config = readConfig();
    return { config, reading: { settings: settingsOf(config) } };
  } catch (wrong) {
    if (!(wrong instanceof ConfigError)) throw wrong;
    return { reading: { invalidSetting: wrong.message } };
  }
}

const settingsOf = ({
  DEPLOYMENT_FORM,
  HOST,
  METRICS_TOKEN,
  BOARD_HOST,
  MAX_REDIS_MEMORY_PERCENT,
  INTEGRATION_KEY,
}: Config): MachineSettings => ({
  isProduction: DEPLOYMENT_FORM === 'production',
  webHost: HOST,
  hasMetricsToken: METRICS_TOKEN !== '',
  consoleHost: BOARD_HOST,
  redisPercent: MAX_REDIS_MEMORY_PERCENT,
  hasIntegrationKey: INTEGRATION_KEY !== '',
});

/** Reads the disks of DATA_DIR and of the temporary folder on this machine. */
export async function readDisks({ DATA_DIR }: Pick<Config, 'DATA_DIR'>): Promise<Disk[]> {
  const disks = [await readDisk('data', path.resolve(DATA_DIR)), await readDisk('tmp', tmpdir())];
  return disks.filter((disk) => disk !== undefined);
}

/** Host names of this machine. The folder of a Unix socket counts too; its slashes are escaped in a URL. */
const HERE = ['', 'localhost', '127.0.0.1', '[::1]'];
const SOCKET = '%2f';

/**
 * Reads the disk of Postgres if Postgres runs on this machine; otherwise returns the host of Postgres.
 *
 * @param dataDirectory as Postgres reports it; undefined if the role may not read it
 */
export async function readPostgresDisk(
  databaseUrl: string,
  dataDirectory?: string,
): Promise<{ disk: Disk } | Required<Pick<MachineReadings, 'unreadDisk'>>> {
  const hostname = URL.canParse(databaseUrl) ? new URL(databaseUrl).hostname : '';
  const onSocket = hostname === '' || hostname.toLowerCase().startsWith(SOCKET);
  if ((onSocket || HERE.includes(hostname)) && dataDirectory) {
    const disk = await readDisk('data', dataDirectory);
    if (disk) return { disk };
  }
  return { unreadDisk: { host: onSocket ? undefined : hostname } };
}

/** Names of files with secrets in DATA_DIR. */
const SECRETS = ['password', 'database-url', 'integration-key'];

/** Reads the permissions of the files with secrets that exist, and of the `.env` of docker compose. */
export function readFiles({ DATA_DIR }: Pick<Config, 'DATA_DIR'>): NonNullable<MachineReadings['files']> {
  return [...SECRETS.map((name) => path.join(DATA_DIR, name)), '.env']
    .filter((file) => existsSync(file))
    .map((file) => ({ path: file, mode: statSync(file).mode & 0o777 }));
}
