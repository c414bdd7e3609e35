import type { Config } from '../platform/config.ts';
import { connectWorker, type QueueConnection } from '../queue/connection.ts';
import { type Database, everyStatementByIndex } from '../store/database.ts';
import { openDatabase } from '../store/open-database.ts';

/** Opens the stores that web, worker, sync and console share in one process. */
export function openStores(url: string, config: Config): { database: Database; connection: QueueConnection } {
  return {
    database: openDatabase(url, config.DATABASE_POOL_SIZE, {
      session: everyStatementByIndex,
    }),
    connection: connectWorker(config, url),
  };
}
