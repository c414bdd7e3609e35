import { type Config, ConfigError } from '../platform/config.ts';
import {
  BOARD_CONNECTIONS,
  EXPORT_CONNECTIONS,
  RETENTION_CONNECTIONS,
  ROW_CONNECTIONS,
} from '../store/pool-sizes.ts';

type Sizes = Pick<Config, 'DATABASE_POOL_SIZE' | 'LANES' | 'QUEUE'>;

/**
 * Returns the maximum number of Postgres connections that web, worker, sync and console of one `npm start`
 * open together. docs/postgres-connections.md explains the sum.
 */
export function connectionsNeeded({ DATABASE_POOL_SIZE: size, LANES: lanes, QUEUE }: Sizes): number {
  const producer = QUEUE === 'postgres' ? Math.max(2, size) : 0;
  // A worker of BullMQ listens on a connection per lane, and each lane has a lease on another one.
  const [consumer, leases] = QUEUE === 'postgres' ? [size + lanes, lanes] : [0, 0];
  const rows = Math.min(size, ROW_CONNECTIONS);
  const fenceListeners = 1;
  const web = size + rows + producer;
  const worker = size + consumer + producer + leases + fenceListeners;
  const sync = size + consumer + producer + RETENTION_CONNECTIONS + EXPORT_CONNECTIONS;
  const pages = Math.min(size, BOARD_CONNECTIONS);
  const board = pages + Math.min(pages, ROW_CONNECTIONS) + producer;
  return web + worker + sync + board;
}

/**
 * Chooses the DATABASE_POOL_SIZE of the processes: the configured size, or the largest smaller size with
 * which their connections stay within DATABASE_MAX_CONNECTIONS.
 * @throws {ConfigError} if pools of one connection exceed DATABASE_MAX_CONNECTIONS
 */
export function fittingPoolSize(config: Sizes & Pick<Config, 'DATABASE_MAX_CONNECTIONS'>): number {
  const { DATABASE_MAX_CONNECTIONS: limit, LANES } = config;
  let size = config.DATABASE_POOL_SIZE;
  while (size > 1 && connectionsNeeded({ ...config, DATABASE_POOL_SIZE: size }) > limit) size--;
  const needed = connectionsNeeded({ ...config, DATABASE_POOL_SIZE: size });
  if (needed <= limit) return size;
  throw new ConfigError(
    `wrong setting: DATABASE_MAX_CONNECTIONS is ${limit}, and LANES=${LANES} needs at least ${needed}`,
  );
}
