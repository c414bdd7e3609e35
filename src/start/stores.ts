import type { Config } from '../platform/config.ts';
import { connectWorker, type QueueConnection } from '../queue/connection.ts';
import { type Database, everyStatementByIndex } from '../store/database.ts';
import { openDatabase } from '../store/open-database.ts';

/** Milliseconds after which an idle connection is closed. To open one costs more than to keep one for a minute. */
const IDLE_TIMEOUT_MS = 60_000;

/** Opens the stores that web, worker, sync and console of one process share. */
export function openStores(url: string, config: Config): { database: Database; connection: QueueConnection } {
  return {
    database: openDatabase(url, config.DATABASE_POOL_SIZE, {
      session: everyStatementByIndex,
      idleTimeout: IDLE_TIMEOUT_MS,
    }),
    connection: connectWorker(config, url, IDLE_TIMEOUT_MS),
  };
}
