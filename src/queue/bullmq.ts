import { createRequire } from 'node:module';
import type * as BullMQ from 'bullmq';

/**
 * BullMQ, loaded as CommonJS. With `import`, Node would read the 220 files of BullMQ and ioredis twice, the first time
 * to find their exports, which would take a fifth of the start of a worker.
 */
const require = createRequire(import.meta.url);

export const {
  assertSchemaCompatibility,
  createRedisBackend,
  PostgresConnection,
  PostgresQueueBackend,
  Queue,
  QueueKeys,
  runMigrations,
  UnrecoverableError,
  WaitingError,
  Worker,
} = require('bullmq') as typeof BullMQ;

// biome-ignore lint/suspicious/noExplicitAny: as BullMQ has it
export type Queue<Data = any> = BullMQ.Queue<Data>;
