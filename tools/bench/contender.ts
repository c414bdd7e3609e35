import type pg from 'pg';
import type { Address } from '../load/address.ts';
import type { Observer } from '../load/observer.ts';

/** What a pipeline has stored, counted in its tables. */
export interface StoredCounts {
  attributes: number;
  events: number;
  purchases: number;
}

/** A pipeline from HTTP to Postgres that speaks POST /users/track, with its processes running. */
export interface Contender {
  name: string;
  target: Address;
  key: string;
  observer: Observer;
  /** Its processes, by name. */
  pids: Record<string, number>;
  /** Kills the edge and starts another on the same port; returns as soon as that runs. */
  restartWeb?(): Promise<void>;
  /** Settings that differ from the defaults. */
  settings: Record<string, string>;
  /** @throws {Error} when its own counters and its rows disagree */
  stored(): Promise<StoredCounts>;
  databaseUrl: string;
  /** Absent when its queue is in Postgres. */
  redisUrl?: string;
  /** For statements of the bench itself: one connection. */
  pool: pg.Pool;
  stop(): Promise<void>;
}
