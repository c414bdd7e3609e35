import { createRequire } from 'node:module';
import type * as BullMQ from 'bullmq';

/**
 * BullMQ, loaded as CommonJS, which it is. For an `import` Node reads the 220 files of BullMQ and ioredis twice, first
 * for the names that they export, which alone would be a fifth of a worker's start.
 */
const require = createRequire(import.meta.url);

export const {
  createPostgresBackend,
  createRedisBackend,
  FlowProducer,
  Queue,
  runMigrations,
  UnrecoverableError,
  WaitingError,
  Worker,
} = require('bullmq') as typeof BullMQ;

// biome-ignore lint/suspicious/noExplicitAny: as BullMQ has it
export type Queue<Data = any> = BullMQ.Queue<Data>;
