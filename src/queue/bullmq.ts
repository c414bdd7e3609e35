import { createRequire } from 'node:module';
import type * as BullMQ from 'bullmq';
import type * as Ioredis from 'ioredis';

/**
 * BullMQ and ioredis, asked for as what they are, CommonJS. For an `import` Node reads their 220 files twice, first for
 * the names that they export, which alone would be a fifth of a worker's start.
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

export const { Cluster, Command, Redis } = require('ioredis') as typeof Ioredis;

// biome-ignore lint/suspicious/noExplicitAny: as BullMQ has it
export type Queue<Data = any> = BullMQ.Queue<Data>;
export type Redis = Ioredis.Redis;
export type Cluster = Ioredis.Cluster;
