import { createRequire } from 'node:module';
import type * as Ioredis from 'ioredis';

/** Loaded as CommonJS, for the reason that src/queue/bullmq.ts gives. */
const require = createRequire(import.meta.url);

export const { Cluster, Command, Redis } = require('ioredis') as typeof Ioredis;

export type Redis = Ioredis.Redis;
export type Cluster = Ioredis.Cluster;
