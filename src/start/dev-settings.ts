import type { DevOptions } from '../admin/command.ts';
import { type Config, ConfigError, readConfig } from '../platform/config.ts';
import { environmentOver } from '../platform/environment.ts';
import { isLoopback } from '../platform/listen.ts';

/**
 * Credentials of `penstock dev`. They are not secret: they give access only to temporary data on this
 * machine.
 */
const CREDENTIALS = {
  BOOTSTRAP_API_KEY: 'penstock-dev-api-key',
  BOOTSTRAP_SCIM_TOKEN: 'penstock-dev-scim-token',
  BOOTSTRAP_SCIM_ORIGIN: 'penstock-dev',
  BOARD_PASSWORD: 'penstock-dev',
};

const DEFAULTS = {
  ...CREDENTIALS,
  LOG_LEVEL: 'warn',
  // A revoked key or a blocked user takes effect with the next request.
  KEY_CACHE_MS: '0',
  // On a busy machine, tests become slower instead of failing.
  MAX_EVENT_LOOP_LAG_MS: '60000',
  QUEUE_TIMEOUT_MS: '30000',
};

/** Settings that `penstock dev` fixes: one process with few connections. */
const FIXED = {
  DEPLOYMENT_FORM: 'embedded',
  DATABASE_POOL_SIZE: '3',
  LANES: '1',
  WORKER_PORT: '0',
  SYNC_PORT: '0',
  SYNC_NICE: '0',
  // There is one process, so no other worker waits for its locks to expire.
  LOCK_DURATION_MS: '30000',
  STALLED_INTERVAL_MS: '30000',
};

/** Settings of stores that may hold real data, so `penstock dev` refuses them. */
const REFUSED = ['DATABASE_URL', 'DATABASE_DIRECT_URL', 'REDIS_URL', 'QUEUE', 'PROXY_UPSTREAM'] as const;

/**
 * Reads the settings of `penstock dev` from the environment.
 * @param dataDir the temporary folder of the data
 * @throws {ConfigError} naming a setting that is wrong, or that leads to real data or to other machines
 */
export function readDevConfig({ port, host }: DevOptions, dataDir: string): Config {
  const given = environmentOver(DEFAULTS);
  const refused = REFUSED.filter((name) => given[name]?.trim());
  if (refused.length > 0)
    throw new ConfigError(
      `penstock dev has a temporary database of its own, and refuses the setting ${refused.join(', ')}; unset it, or run penstock start`,
    );
  const config = readConfig({
    ...given,
    ...FIXED,
    DATA_DIR: dataDir,
    ...(port !== undefined && { PORT: String(port) }),
    ...(host !== undefined && { HOST: host, BOARD_HOST: host }),
    // A default port may already be in use by another run, so choose a free one.
    BOARD_PORT: given.BOARD_PORT || '0',
  });
  for (const name of ['HOST', 'BOARD_HOST'] as const)
    if (host === undefined && !isLoopback(config[name]))
      throw new ConfigError(
        `penstock dev has fixed keys, so it listens on loopback only, and ${name} is ${config[name]}; unset ${name}, or pass --host ${config[name]}`,
      );
  return config;
}

/** Returns the values of settings that a database template contains. */
export const credentialsOf = (config: Config): string[] => [
  config.BOOTSTRAP_API_KEY,
  config.BOOTSTRAP_SCIM_TOKEN,
  config.BOOTSTRAP_SCIM_ORIGIN,
];
