import type { Disk } from '../platform/disk.ts';
import type { LaneNow } from '../queue/depth.ts';
import type { RedisHealth, RedisSettings } from '../queue/redis.ts';
import type { PostgresHealth, TableSize } from '../store/health.ts';
import type { StoppedImport } from '../store/imports.ts';
import type { QueueLoss, Spread } from '../store/installation.ts';
import type { EndedProcesses, MarkLevel, SeenProcess } from '../store/processes.ts';
import type { FailedExport } from '../store/segment-exports.ts';
import type { TroubledIntegration } from '../store/sync-lists.ts';

/**
 * `migrations`: Postgres answers, but lacks tables of this version. `redis`: the Redis of the queue or of the rate
 * limits. `queue`: the queue in Postgres. `producer`: the queue answers, but a connection with which the process adds
 * objects is not open.
 */
export type Dependency = 'postgres' | 'migrations' | 'redis' | 'queue' | 'producer';

/** A dependency that the reading process cannot use now. */
export interface Lacking {
  name: Dependency;
  /** Absent if there was only one reading. */
  since?: Date | undefined;
  /** Message of the library; absent if the dependency did not answer. */
  reason?: string | undefined;
}

/** Latency and usage of a store. */
export interface StoreState {
  /** Milliseconds of one query. */
  latency: number;
  /** Used and maximum connections, or bytes of memory; `most` is 0 if there is no limit. */
  used: number;
  most: number;
}

/** State of a stream's destination. */
export interface StreamNow {
  workspaceId: string;
  workspace: string;
  name: string;
  /** Seconds since the oldest undelivered change took effect. */
  lag: number;
  /** Seconds for which changes are collected before delivery. */
  gather: number;
  /** Number of consecutive failed attempts. */
  failures: number;
  lastError: string | null;
  isPaused: boolean;
  /** Number of transactions that were trimmed before delivery. */
  lost: number;
  lostAt: Date | null;
}

/** Report of a process about its own work. */
export interface OwnWork {
  /** Lanes with jobs that have waited for longer than MAX_ENVELOPE_AGE_MS. */
  stuck?: { lane: number; seconds: number }[];
  /** Seconds for which jobs have waited while no worker took one. */
  standstill?: number;
  /** Lanes whose next job was written by a later release. */
  unreadable?: { lane: number; version: number; reads: number }[];
  /** Jobs without progress for longer than their limit. */
  overdue?: { kind: string; id: string; seconds: number }[];
  /** Load limits of a web process, and requests per second that it rejects. */
  marks?: Record<string, MarkLevel>;
  refusedPerSecond?: number;
  /** Whether Postgres refuses every write of the process because it is read-only. */
  isReadOnly?: boolean;
}

/** Certificate of a store, as a new TLS connection from this machine receives it. */
export interface Certificate {
  store: 'Postgres' | 'Redis';
  /** Host and port. */
  server: string;
  /** Undefined if the server does not offer TLS. */
  validUntil: Date | undefined;
  /** Reason why the processes do not trust the certificate; absent if they trust or do not verify it. */
  distrust?: string;
}

/** State of a Redis server that has lanes. */
export interface RedisServer {
  /** Host and port; undefined without a cluster. */
  name: string | undefined;
  settings: RedisSettings;
  /** Bytes of maxmemory; 0 if it is not set. */
  maxmemory: number;
  /** Connected replicas. */
  replicas: number;
}

/** State of the Redis servers of the queue. `servers` is empty if the queue is in Postgres. */
export interface RedisServers {
  servers: RedisServer[];
  /** REDIS_WAIT_REPLICAS. */
  replicasWanted: number;
  /** Keys of jobs that are in no list of their lane. */
  strayJobs: string[];
  /** Absent without a cluster. `dependent` names servers that stop if the primary of another shard is unavailable. */
  cluster?: { isServing: boolean; shards: number; dependent: string[] };
}

/** Valid settings of the environment, as far as checks compare them. */
export interface MachineSettings {
  isProduction: boolean;
  webHost: string;
  hasMetricsToken: boolean;
  consoleHost: string;
  /** Percent of maxmemory above which web refuses requests. */
  redisPercent: number;
  hasIntegrationKey: boolean;
}

/** Readings that `penstock doctor` can take. */
export type MachineReading = 'certificates' | 'postgres' | 'queue';

/**
 * State of a machine and of the stores, as `penstock doctor` reads it. An absent member was not read or could not be
 * read.
 */
export interface MachineReadings {
  /** Settings of the environment, if they are valid. */
  settings?: MachineSettings;
  /** Reason why the settings are invalid. */
  invalidSetting?: string;
  /** Whether the address of Postgres is missing in DATABASE_URL and in DATA_DIR. */
  lacksDatabaseUrl?: boolean;
  /** Whether DATABASE_URL leads through a pooler in transaction mode, and DATABASE_DIRECT_URL is empty. */
  lacksDirectUrl?: boolean;
  /** Files with secrets, with their permission bits. */
  files?: { path: string; mode: number }[];
  certificates?: Certificate[];
  /** Host of a Postgres whose disk this machine cannot read; undefined on a socket. */
  unreadDisk?: { host: string | undefined };
  /** Milliseconds by which the clock of a store is ahead of the clock of this machine, without the round-trip time. */
  clocks?: { store: string; skew: number }[];
  /** Whether Postgres has the tables of this release. */
  isMigrated?: boolean;
  /** Partitions of this month and the next that do not exist. */
  missingPartitions?: string[];
  /** Number of fences at which lanes have waited for long, and seconds of the longest wait. */
  fences?: { fences: number; seconds: number };
  tables?: Pick<TableSize, 'table' | 'liveRows' | 'deadRows'>[];
  redis?: RedisServers;
  failures?: { reading: MachineReading; reason: string }[];
}

/** Input of the checks. An absent member was not read or could not be read, and no check draws a conclusion from it. */
export interface Readings {
  at: Date;
  /** The store that holds the queue. */
  queue: 'redis' | 'postgres';
  lacking: Lacking[];
  processes?: SeenProcess[] | undefined;
  /** Processes that ended without a regular stop in the last minutes. */
  ends?: EndedProcesses[] | undefined;
  lanes?: LaneNow[] | undefined;
  /** Jobs per second by which the queue shrinks; negative if it grows. Absent if there was only one reading. */
  drained?: number | undefined;
  /** Lanes and shards of the installation, and in the settings of the reading process. */
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
  /** The reason why the last heartbeat of the reading process could not be written. */
  rejectsWrites?: { reason: string; since: Date } | undefined;
  redis?: (StoreState & RedisHealth) | undefined;
  disks?: Disk[] | undefined;
  loss?: QueueLoss | undefined;
  own?: OwnWork | undefined;
  machine?: MachineReadings | undefined;
  /** Names of values that Postgres did not return in time; absent if it returned all. */
  unread?: string[] | undefined;
}
