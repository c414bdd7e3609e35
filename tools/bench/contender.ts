import type pg from 'pg';
import type { Address } from '../load/address.ts';
import type { Observer } from '../load/observer.ts';

/** Number of objects that a pipeline has stored, counted in its tables. */
export interface StoredCounts {
  attributes: number;
  events: number;
  purchases: number;
}

/** A running pipeline from HTTP to Postgres that accepts POST /users/track. */
export interface Contender {
  name: string;
  target: Address;
  key: string;
  observer: Observer;
  /** Process ids by name. */
  pids: Record<string, number>;
  /** Kills the web process and starts another one on the same port; returns as soon as it runs. */
  restartWeb?(): Promise<void>;
  /** Settings that differ from the defaults. */
  settings: Record<string, string>;
  /** @throws {Error} if its own counters and its rows differ */
  stored(): Promise<StoredCounts>;
  databaseUrl: string;
  /** Absent if its queue is in Postgres. */
  redisUrl?: string;
  /** Pool with one connection for statements of the bench itself. */
  pool: pg.Pool;
  stop(): Promise<void>;
}
