import { readDisk } from '../platform/disk.ts';
import { unlessUnavailable, withTimeout } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { rest } from '../platform/poll.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { createLaneDepths, type LaneNow } from '../queue/depth.ts';
import { readHealth } from '../queue/redis.ts';
import type { Pool } from '../store/database.ts';
import { countWaiting } from '../store/dead-letters.ts';
import { type PostgresHealth, readPostgresHealth, readReplication } from '../store/health.ts';
import { listStoppedImports } from '../store/imports.ts';
import { type QueueLoss, readSpread } from '../store/installation.ts';
import { listProcesses, readEnds, type SeenProcess, SILENT_SECONDS } from '../store/processes.ts';
import { listLosses } from '../store/queue-losses.ts';
import { listFailedExports } from '../store/segment-exports.ts';
import { listDestinations } from '../store/stream-destinations.ts';
import { readSyncState } from '../store/sync-lists.ts';
import type { Dependency, Lacking, Readings, StreamNow } from './readings.ts';
import { IMPORT_STOPPED_SECONDS, LATE_SECONDS } from './thresholds.ts';

/** Maximum number of dead letters counted. The page of dead letters counts by group. */
export const MAX_DEAD_LETTERS = 10_000;

/** Maximum number of losses (latest first) and destinations (oldest first) that are read. */
const MAX_LOSSES = 100;
const MAX_DESTINATIONS = 200;

/** Milliseconds after which a store that does not answer counts as unreachable. */
const PATIENCE_MS = 600;

/** Time for all statements after the first, as a multiple of the patience. */
const STORED_SHARE = 5;

/** Milliseconds between two readings for a drain rate, and between a suspicious reading and its confirmation. */
const RATE_MS = 700;
const CONFIRM_MS = 2000;

/** Milliseconds for which earlier queue depths are kept for the drain rate. */
const PAST_MS = 30_000;

/**
 * Milliseconds after the return of a store during which old heartbeats are ignored. Processes report the return at
 * once, but until then their rows are as old as the outage.
 */
const GRACE_MS = 8000;

/** Milliseconds of an outage from which heartbeats can be so old that their processes seem silent. */
const LONG_OUTAGE_MS = 5000;

/** Stores that a reader reads. */
export interface ReaderStores {
  pool: Pool;
  queue: {
    kind: 'redis' | 'postgres';
    /** Connection to the queue; undefined if it could not be opened. */
    connection: QueueConnection | undefined;
    /** Error of opening the queue. */
    failure?: string | undefined;
    /** Number of lanes of all shards; undefined to read it from the installation. */
    lanes?: number | undefined;
    settings?: Readings['settings'];
  };
  /** DATA_DIR; absent if its disk is not read. */
  dataDir?: string;
}

/** State of the reading process that the stores do not contain. */
export interface ReaderSelf {
  /** Dependencies that the process itself monitors. */
  lacking?(): Lacking[];
  /** Error of the last heartbeat of this process. */
  rejectsWrites?: (() => Readings['rejectsWrites']) | undefined;
}

export interface ReaderOptions {
  /** Milliseconds within which a store has to answer. */
  patience?: number;
  /** Whether `read` waits for a second reading to confirm a suspicious one. A repeated reader does not need this. */
  readsOnce: boolean;
  /** Log for readings that failed. */
  log?: Pick<Log, 'debug'> | undefined;
}

export interface Reader {
  /** Reads everything once. Takes about a second even if stores are unreachable. Never rejects. */
  read(): Promise<Readings>;
}

/** Readings that come from Postgres. */
type Stored = Pick<
  Readings,
  | 'processes'
  | 'ends'
  | 'spread'
  | 'deadLetters'
  | 'syncs'
  | 'streams'
  | 'exports'
  | 'imports'
  | 'postgres'
  | 'loss'
  | 'unread'
>;

/** Creates a reader of the fleet, for the console, the command line and the metrics. */
export function createReader(
  { pool, queue: source, dataDir }: ReaderStores,
  { patience = PATIENCE_MS, readsOnce, log }: ReaderOptions,
  self: ReaderSelf = {},
): Reader {
  const { kind: queue, connection, failure, settings } = source;
  const away = new Map<Dependency, Date>();
  const answeredAt = new Map<Dependency, number>();
  let depths: { at: number; waiting: number }[] = [];

  /** Records when a store became unreachable and when it came back. */
  function note(name: Dependency, isAway: boolean): void {
    if (isAway) {
      if (!away.has(name)) away.set(name, new Date(Date.now()));
      return;
    }
    const since = away.get(name);
    away.delete(name);
    if (since && Date.now() - since.getTime() >= LONG_OUTAGE_MS) answeredAt.set(name, performance.now());
  }

  const cameBack = () => Math.max(...answeredAt.values()) > performance.now() - GRACE_MS;

  const readProcesses = oneAtATime(async () => {
    const begun = performance.now();
    const processes = await listProcesses(pool);
    return { processes, latency: performance.now() - begun };
  });
  /** Repeats a reading that began during an outage which is over: it contains the outage in its latency. */
  const currentOf = async <T extends { latency: number }>(read: () => Promise<T>): Promise<T> => {
    const first = await read();
    return first.latency > patience ? read() : first;
  };
  const storedMs = patience * STORED_SHARE;
  let reading: StoredReading | undefined;
  const readRedis = oneAtATime(async () => {
    const { redis, layout } = connection!;
    const begun = performance.now();
    const health = await readHealth(redis!, layout.shards);
    return { latency: performance.now() - begun, ...health };
  });
  const readDepths = oneAtATime((lanes: number) =>
    createLaneDepths(connection!.laneStore, { lanes, timeout: patience }).readAll(),
  );

  const isAway = (store: Dependency) => self.lacking?.().some(({ name }) => name === store) ?? false;
  const isPostgresAway = () => isAway('postgres');
  const isRedisAway = () => isAway('redis');

  const inTime = <T>(work: Promise<T>, milliseconds = patience) =>
    withTimeout(milliseconds, work).catch((error: unknown) => {
      log?.debug({ err: error }, 'reading for the checks failed');
      return undefined;
    });

  /** Starts the statements after the first, unless they are still running. Never rejects. */
  function readOthers(): StoredReading {
    if (reading) return reading;
    const begun = beginReading(pool, log);
    reading = begun;
    void begun.done.then(() => {
      reading = undefined;
    });
    return begun;
  }

  /**
   * Returns undefined if Postgres does not answer. Statements after the first have a longer timeout. If they take longer,
   * the values that have arrived are returned.
   */
  async function readPostgres(): Promise<Stored | undefined> {
    const first = await inTime(unlessUnavailable(isPostgresAway, () => currentOf(readProcesses)));
    if (!first) return undefined;
    const { values, done, begunAt } = readOthers();
    await inTime(
      unlessUnavailable(isPostgresAway, () => done),
      storedMs,
    );
    const isOld = performance.now() - begunAt > 2 * storedMs;
    const stored = storedOf(isOld ? {} : { ...values }, first.latency);
    // A store that went away during the reading answers no other statement.
    if (stored.unread && (isPostgresAway() || !(await inTime(readProcesses())))) return undefined;
    return { processes: first.processes, ...stored };
  }

  async function readLanes(lanes: number | undefined): Promise<LaneNow[] | undefined> {
    if (lanes === undefined || !connection?.laneStore.ready()) return undefined;
    const read = await inTime(unlessUnavailable(isRedisAway, () => readDepths(lanes)));
    if (read) {
      const now = performance.now();
      const waiting = read.reduce((sum, { depth }) => sum + depth, 0);
      depths = [...depths.filter(({ at }) => now - at < PAST_MS), { at: now, waiting }];
    }
    return read;
  }

  /** Jobs per second by which the queue has shrunk since the earliest kept reading. */
  function drainRate(): number | undefined {
    const [first, last] = [depths[0], depths.at(-1)];
    if (!first || !last || last.at - first.at < RATE_MS / 2) return undefined;
    return ((first.waiting - last.waiting) * 1000) / (last.at - first.at);
  }

  async function readAll(): Promise<Readings> {
    const redisThere = connection?.redis?.status === 'ready';
    const [stored, redis, disk] = await Promise.all([
      readPostgres(),
      redisThere ? inTime(unlessUnavailable(isRedisAway, () => currentOf(readRedis))) : undefined,
      dataDir === undefined ? undefined : readDisk('data', dataDir),
    ]);
    const lanesWanted = source.lanes ?? stored?.spread?.lanes;
    let lanes = await readLanes(lanesWanted);
    const isLate = lanes?.some(({ depth, oldestSeconds }) => depth > 0 && oldestSeconds > LATE_SECONDS);
    if (isLate && drainRate() === undefined) {
      await rest(RATE_MS);
      lanes = await readLanes(lanesWanted);
    }
    note('postgres', stored === undefined);
    const queueAway = queue === 'redis' ? redis === undefined && lanes === undefined : false;
    note('redis', queueAway);
    const lacking = lackingOf({ stored, queueAway, lanes });
    return {
      ...{ at: new Date(Date.now()), queue, lacking, lanes, redis, settings },
      drained: lanes && drainRate(),
      disks: disk && [disk],
      ...stored,
      rejectsWrites: self.rejectsWrites?.() ?? refusalOf(stored?.processes),
    };
  }

  function lackingOf({
    stored,
    queueAway,
    lanes,
  }: {
    stored: Stored | undefined;
    queueAway: boolean;
    lanes: LaneNow[] | undefined;
  }): Lacking[] {
    const found: Lacking[] = [];
    const sinceOf = (name: Dependency) => (readsOnce ? undefined : away.get(name));
    if (!stored) found.push({ name: 'postgres', since: sinceOf('postgres') });
    if (queueAway) found.push({ name: 'redis', since: sinceOf('redis'), reason: failure });
    // Add dependencies that only the process itself monitors: tables, and its own producer.
    for (const one of self.lacking?.() ?? []) {
      if (one.name === 'postgres' || one.name === 'redis') continue;
      if (one.name === 'producer' && queueAway) continue;
      if (one.name === 'queue' && (!stored || lanes !== undefined)) continue;
      if (one.name === 'migrations' && !stored) continue;
      if (!cameBack()) found.push(one);
    }
    if (readsOnce && queue === 'postgres' && stored?.spread && lanes === undefined)
      if (!found.some(({ name }) => name === 'queue')) found.push({ name: 'queue', reason: failure });
    return found;
  }

  /** Hides heartbeats that are as old as the outage of their store. */
  function settled(readings: Readings): Readings {
    if (!cameBack() || !readings.processes) return readings;
    const processes = readings.processes.map((one) => ({
      ...one,
      missing: [],
      silentSeconds: Math.min(one.silentSeconds, SILENT_SECONDS - 1),
    }));
    return { ...readings, processes };
  }

  return {
    async read() {
      const readings = await readAll();
      if (!readsOnce) return settled(readings);
      if (!isSuspect(readings)) return readings;
      await rest(CONFIRM_MS);
      return readAll();
    },
  };
}

/** Returns the earliest refusal of writes that a running process reports. */
function refusalOf(processes: readonly SeenProcess[] = []): Readings['rejectsWrites'] {
  const [first] = processes
    .flatMap(({ silentSeconds, refusal }) => (refusal && silentSeconds <= SILENT_SECONDS ? [refusal] : []))
    .sort((one, other) => (one.since < other.since ? -1 : 1));
  return first && { reason: first.reason, since: new Date(first.since) };
}

/** Whether heartbeats may be outdated because a store has just come back. */
function isSuspect({ processes = [], lacking }: Readings): boolean {
  if (lacking.length > 0 || processes.length === 0) return false;
  const alive = processes.filter(({ silentSeconds }) => silentSeconds <= SILENT_SECONDS);
  return alive.length === 0 || alive.some(({ missing }) => missing.length > 0);
}

/** Wraps a function so that concurrent calls share one execution. A store that hangs is then queried only once. */
function oneAtATime<Args extends unknown[], T>(work: (...args: Args) => Promise<T>) {
  let inProgress: Promise<T> | undefined;
  return (...args: Args): Promise<T> => {
    inProgress ??= work(...args).finally(() => {
      inProgress = undefined;
    });
    return inProgress;
  };
}

/** Statements after the first. */
const statements = {
  health: readPostgresHealth,
  replication: readReplication,
  spread: readSpread,
  deadLetters: (pool: Pool) => countWaiting(pool, MAX_DEAD_LETTERS + 1),
  streams: (pool: Pool) => listDestinations(pool, { limit: MAX_DESTINATIONS }),
  syncs: readSyncState,
  losses: (pool: Pool) => listLosses(pool, MAX_LOSSES),
  ends: readEnds,
  exports: listFailedExports,
  imports: (pool: Pool) => listStoppedImports(pool, IMPORT_STOPPED_SECONDS),
};

type Statement = keyof typeof statements;

/** Names of the values for operators. */
const titles: Record<Statement, string> = {
  ...{ health: 'state of Postgres', replication: 'replication of Postgres', spread: 'number of lanes' },
  ...{ deadLetters: 'dead letters', streams: 'streams', syncs: 'syncs', losses: 'losses of the queue' },
  ...{ ends: 'ends of processes', exports: 'segment exports', imports: 'imports' },
};

/** Results by statement. A statement without a key failed or has not answered yet. */
type Values = { [Name in Statement]?: Awaited<ReturnType<(typeof statements)[Name]>> };

/** A reading in progress. `values` is filled as the answers arrive. */
interface StoredReading {
  values: Values;
  begunAt: number;
  done: Promise<void>;
}

/** Runs the statements one after the other, because pages need connections, too. Never rejects. */
function beginReading(pool: Pool, log: ReaderOptions['log']): StoredReading {
  const values: Values = {};
  async function run(): Promise<void> {
    for (const [statement, read] of Object.entries(statements))
      try {
        Object.assign(values, { [statement]: await read(pool) });
      } catch (error) {
        log?.debug({ err: error, statement }, 'reading for the checks failed');
      }
  }
  return { values, begunAt: performance.now(), done: run() };
}

/** @param latency milliseconds of the first statement, which is known even if no other has answered */
function storedOf(values: Values, latency: number): Omit<Stored, 'processes'> {
  const { health, replication, spread, deadLetters, streams, syncs, losses, ends, exports, imports } = values;
  const unread = (Object.keys(statements) as Statement[]).filter((name) => !(name in values));
  return {
    ...{ spread, ends, exports, imports },
    ...(unread.length > 0 && { unread: unread.map((name) => titles[name]) }),
    postgres: {
      ...{ latency, used: 0, most: 0, isReadOnly: false },
      ...(health && usageOf(health)),
      lagSeconds: replication?.lagSeconds ?? null,
    },
    deadLetters: deadLetters && {
      ...{ count: Math.min(deadLetters.count, MAX_DEAD_LETTERS), since: deadLetters.since },
      isMore: deadLetters.count > MAX_DEAD_LETTERS,
    },
    syncs: syncs && { unfinished: syncs.unfinished, troubled: syncs.troubled },
    streams: streams?.map(
      ({
        workspaceId,
        workspace,
        name,
        lag,
        gatherMs,
        failures,
        lastError,
        state,
        lost,
        lostAt,
      }): StreamNow => ({
        ...{ workspaceId, workspace, name, lag, gather: gatherMs / 1000, failures, lastError, lost, lostAt },
        isPaused: state === 'paused',
      }),
    ),
    loss: losses && lossOf(losses),
  };
}

/** Adds the used connections, and whether Postgres accepts writes, to its health. */
export function usageOf(health: PostgresHealth) {
  return {
    ...{ ...health, used: health.connections, most: Number(health.settings.max_connections) },
    isReadOnly: health.inRecovery || health.settings.default_transaction_read_only === 'on',
  };
}

type Losses = Awaited<ReturnType<typeof listLosses>>;

/** Summarizes the losses that no operator has confirmed. */
function lossOf(losses: Losses): QueueLoss | undefined {
  const open = losses.filter(({ confirmedAt }) => confirmedAt === null);
  const [latest] = open;
  if (!latest) return undefined;
  const { id, found, shard } = latest;
  return {
    ...{ losses: open.length, latest: id, found, ...(shard > 0 && { shard }) },
    acceptedFrom: open.map((one) => one.acceptedFrom).sort()[0]!,
    acceptedUntil: open
      .map((one) => one.acceptedUntil)
      .sort()
      .at(-1)!,
  };
}
