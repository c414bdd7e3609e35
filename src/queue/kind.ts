import type { Config } from '../config.ts';

/** The store that holds accepted objects until they are applied. */
export type QueueKind = 'redis' | 'postgres';

/** Where the queue lives: as QUEUE says, else in Redis where there is one. */
export function queueKind({ QUEUE, REDIS_URL }: Pick<Config, 'QUEUE' | 'REDIS_URL'>): QueueKind {
  return QUEUE === 'postgres' || !REDIS_URL ? 'postgres' : 'redis';
}
