import type { Disk } from '../platform/disk.ts';
import type { LaneNow } from '../queue/depth.ts';
import type { RedisHealth } from '../queue/redis.ts';
import type { PostgresHealth } from '../store/health.ts';
import type { StoppedImport } from '../store/imports.ts';
import type { QueueLoss, Spread } from '../store/installation.ts';
import type { EndedProcesses, MarkLevel, SeenProcess } from '../store/processes.ts';
import type { FailedExport } from '../store/segment-exports.ts';
import type { TroubledIntegration } from '../store/sync-lists.ts';

/**
 * `migrations`: Postgres answers, but lacks tables of this version. `redis`: of the queue, or of the rate limits.
 * `queue`: that in Postgres. `producer`: the queue answers, and a connection that the process adds objects by is not open.
 */
export type Dependency = 'postgres' | 'migrations' | 'redis' | 'queue' | 'producer';

/** A dependency that whoever reads cannot use now. */
export interface Lacking {
  name: Dependency;
  /** Absent: it was read once, and not there. */
  since?: Date | undefined;
  /** In the words of the library; absent: it gave no answer. */
  reason?: string | undefined;
}

/** How a store answers. */
export interface StoreState {
  /** Milliseconds. */
  latency: number;
  /** What is used of what there is: connections, or bytes of memory; 0: there is no limit. */
  used: number;
  most: number;
}

/** A destination of streams, as far as it can be in trouble. */
export interface StreamNow {
  workspace: string;
  name: string;
  /** Seconds since the oldest thing that it has not got took effect. */
  lag: number;
  /** Seconds for which changes are gathered before they are delivered. */
  gather: number;
  /** Failed attempts in a row. */
  failures: number;
  lastError: string | null;
  isPaused: boolean;
  /** Transactions that were trimmed before it got them. */
  lost: number;
  lostAt: Date | null;
}

/** What a process knows of its own work. */
export interface OwnWork {
  /** Jobs that wait for longer than MAX_ENVELOPE_AGE_MS. */
  stuck?: { lane: number; seconds: number }[];
  /** Seconds for which jobs have waited while no worker took one. */
  standstill?: number;
  /** Lanes whose next job was written by a later release. */
  unreadable?: { lane: number; version: number; reads: number }[];
  /** Jobs without progress for longer than their limit. */
  overdue?: { kind: string; id: string; seconds: number }[];
  /** High-water marks of a web process, and requests a second that it refuses. */
  marks?: Record<string, MarkLevel>;
  refusedPerSecond?: number;
}

/**
 * What the checks are evaluated on. A member that is absent was not read, or could not be read: no check draws a
 * conclusion from it.
 */
export interface Readings {
  at: Date;
  /** Where the queue is. */
  queue: 'redis' | 'postgres';
  lacking: Lacking[];
  processes?: SeenProcess[] | undefined;
  /** Processes that ended without stopping, of the last minutes. */
  ends?: EndedProcesses[] | undefined;
  lanes?: LaneNow[] | undefined;
  /** Jobs a second by which the queue shrinks; negative: it grows. Absent: it was read once. */
  drained?: number | undefined;
  /** Lanes and shards of the installation, and those of the settings of whoever reads. */
  spread?: Spread | undefined;
  settings?: { lanes: number; shards: number } | undefined;
  deadLetters?: { count: number; isMore: boolean; since: Date | null } | undefined;
  syncs?: { unfinished: number; troubled: TroubledIntegration[] } | undefined;
  streams?: StreamNow[] | undefined;
  exports?: FailedExport[] | undefined;
  imports?: StoppedImport[] | undefined;
  postgres?:
    | (StoreState & Partial<PostgresHealth> & { isReadOnly: boolean; lagSeconds?: number | null })
    | undefined;
  /** The last heartbeat of whoever reads could not be written for this reason. */
  rejectsWrites?: { reason: string; since: Date } | undefined;
  redis?: (StoreState & RedisHealth) | undefined;
  disks?: Disk[] | undefined;
  loss?: QueueLoss | undefined;
  own?: OwnWork | undefined;
}
