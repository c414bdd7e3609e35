import path from 'node:path';
import { type Config, ConfigError } from './config.ts';
import { readEmbeddedUrl } from './embedded/postgres.ts';

/**
 * The Postgres that a process works on: DATABASE_URL, else the embedded one of DATA_DIR.
 * @throws {ConfigError} when there is neither
 */
export function databaseUrl(config: Config): string {
  const url = config.DATABASE_URL || readEmbeddedUrl(config.DATA_DIR);
  if (url) return url;
  throw new ConfigError(
    `DATABASE_URL is empty and no embedded Postgres was ever started in DATA_DIR (${path.resolve(config.DATA_DIR)}); npm start starts one`,
  );
}
