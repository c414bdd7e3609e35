import { nowDate } from '../../src/platform/clock.ts';
import type { Config } from '../../src/platform/config.ts';
import { type Service, withTimeout } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { layoutOf } from '../../src/queue/lanes.ts';
import { keepAnswering } from '../../src/queue/redis.ts';
import { READS } from '../../src/queue/wire.ts';
import { holdSession } from '../../src/store/connections.ts';
import type { PostgresClient } from '../../src/store/postgres-client.ts';
import type { HeldLane } from '../../src/store/processes.ts';
import { type LaneContext, LaneWorker } from './lane-worker.ts';
import type { Scheduler } from './scheduler.ts';
import { shareLanes, type WorkedLane } from './share.ts';
import { startWatchdog } from './watchdog.ts';

/** Fraction of the shutdown timeout after which the current batches are abandoned. */
const SHARE_OF_DEADLINE = 0.6;

/** Milliseconds for which this worker leaves a lane to workers of a later release before it tries the lane again. */
const STAND_BACK_MS = 5000;

/** Milliseconds between two log lines about the same unreadable lane. */
const WARN_MS = 60_000;

export interface LanesOptions extends Omit<LaneContext, 'laneStore'> {
  scheduler: LaneContext['scheduler'] & Pick<Scheduler, 'abandon'>;
  connection: QueueConnection;
  /** UUID of the process. */
  id: string;
  config: LaneContext['config'] & Pick<Config, 'SHUTDOWN_TIMEOUT_MS'>;
  databaseUrl: string;
  /** Separate connection for the watchdog's queries. */
  observer: QueueConnection;
  /** Called when a lane is opened or closed. */
  onChange?(): void;
}

export interface Lanes extends Service {
  /** Returns the lanes whose next envelope has a version that this worker cannot read. */
  unreadable(): Unreadable[];
  /** Returns the lanes that this process works now, ordered by number. */
  held(): HeldLane[];
}

export interface Unreadable {
  lane: number;
  version: number;
  /** The latest version that this worker reads. */
  reads: number;
}

/**
 * Works the lanes of this process, each monitored by the watchdog. With a queue in Redis, they are the process's share
 * of all lanes. With a queue in Postgres, they are the lanes whose lease the process holds. On stop, each lane finishes
 * its current batch; a batch that cannot finish because Postgres is unavailable is left to another worker. A lane whose
 * next envelope was written by a later release is also left to another worker: no later envelope can overtake it.
 */
export function startLanes(options: LanesOptions): Lanes {
  const { id, connection, observer, scheduler, config, databaseUrl, log, reads = READS } = options;
  const watches = [connection, observer].map((one) => keepAnswering(one, config.LOCK_DURATION_MS, log));
  const watchdog = startWatchdog({
    ...{ connection, observer, log, lockDuration: config.LOCK_DURATION_MS },
    exit: () => process.exit(1),
  });

  /** Unreadable envelopes by lane: their version, and when the lane last reached and last logged it. */
  const unreadable = new Map<number, { version: number; at: number; warnedAt: number }>();

  function noteUnreadable(lane: number, version: number): void {
    const at = performance.now();
    const before = unreadable.get(lane);
    const isNews = before?.version !== version || at - before.warnedAt > WARN_MS;
    unreadable.set(lane, { version, at, warnedAt: isNews ? at : before.warnedAt });
    if (!isNews) return;
    log.error(
      { lane, version, reads },
      'next job of a lane was written by a later release; the lane waits. Start a worker of that release',
    );
  }

  /** Lanes that are open, by number. */
  const held = new Map<number, HeldLane>();

  function note(lane: number, isHeld: boolean): void {
    if (isHeld) held.set(lane, { lane, since: nowDate().toISOString() });
    else held.delete(lane);
    options.onChange?.();
  }

  const openLane = (lane: number): WorkedLane => {
    let leave = (_version: number) => {};
    const left = new Promise<number>((resolve) => {
      leave = resolve;
    });
    const onUnreadable = (version: number) => {
      noteUnreadable(lane, version);
      leave(version);
    };
    const context = { ...options, laneStore: connection.laneStore, onUnreadable };
    const service = watchdog.watch(lane, () => new LaneWorker(lane, context));
    note(lane, true);
    return {
      ...service,
      left,
      stop() {
        note(lane, false);
        return service.stop();
      },
    };
  };
  const leaseLane = (lane: number): Service =>
    withLaneLease({
      ...{ databaseUrl, lane, log, patience: config.LOCK_DURATION_MS },
      start: () => openLane(lane),
    });
  const lanes = observer.redis
    ? [
        shareLanes({
          ...{ redis: observer.redis, id, layout: layoutOf(config), reads, log },
          endLease: observer.laneStore.endLease,
          ...{ lockDuration: config.LOCK_DURATION_MS, standBack: STAND_BACK_MS, open: openLane },
        }),
      ]
    : Array.from({ length: config.LANES }, (_, lane) => leaseLane(lane));

  return {
    name: 'lanes',
    unreadable() {
      const now = performance.now();
      // A worker tries an unreadable lane again after STAND_BACK_MS, so an older entry means that the lane went on.
      const isThere = ({ at }: { at: number }) => now - at < 2 * STAND_BACK_MS;
      return [...unreadable]
        .filter(([, entry]) => isThere(entry))
        .map(([lane, { version }]) => ({ lane, version, reads }));
    },
    held: () => [...held.values()].sort((one, other) => one.lane - other.lane),
    async stop() {
      const patience = new Promise<void>((resolve) => {
        setTimeout(() => {
          scheduler.abandon();
          resolve();
        }, config.SHUTDOWN_TIMEOUT_MS * SHARE_OF_DEADLINE).unref();
      });
      await Promise.race([patience, Promise.all(lanes.map((lane) => lane.stop()))]);
      for (const watch of [watchdog, ...watches]) await watch.stop();
    },
  };
}

/** First half of the advisory lock's key: "pstk" in ASCII. The second half is the lane. */
const LOCK_SPACE = 0x7073746b;

/** Milliseconds between two attempts to lock a lane that another process holds: the maximum delay of a takeover. */
const RETRY_MS = 250;

/** Number of heartbeats that a lease holder sends within its patience. */
const BEATS = 4;

interface LaneLease {
  databaseUrl: string;
  lane: number;
  /** Milliseconds after which a silent holder loses the lease, for example because its process or machine froze. */
  patience: number;
  /** Starts to work the lane. The returned service is stopped when the lease is lost or `left` resolves. */
  start(): Service & { left?: Promise<unknown> };
  log: Log;
}

/**
 * Works a lane only while this process holds its lease: a session-level advisory lock, which Postgres releases when the
 * process dies or goes silent. With BullMQ's Postgres backend the lease is needed for speed only, not for ordering or
 * exactly-once effects: while a lane has an active job, a second worker of the lane would poll without a pause.
 */
export function withLaneLease({ databaseUrl, lane, patience, start, log }: LaneLease): Service {
  let isLeft = false;
  let ends = false;
  const stop = holdSession({
    databaseUrl,
    what: 'the lease of a lane',
    settings: { idle_session_timeout: patience },
    beat: patience / BEATS,
    retry: () => (isLeft ? STAND_BACK_MS : RETRY_MS),
    async hold(client, { lost, isOver }) {
      isLeft = false;
      // If the session was stopped while the lock was being acquired, ending the session releases the lock.
      if (!(await acquired(client, lane)) || isOver()) return;
      log.info({ lane }, 'lane acquired');
      const service = start();
      const leaves = service.left?.then(() => {
        isLeft = true;
      });
      await Promise.race([lost, leaves ?? lost]);
      const stopped = service.stop();
      // A lane that hangs may never stop. Only the shutdown of the process waits for it.
      await withTimeout(patience, stopped).catch(() => {
        if (!ends) log.warn({ lane }, 'lane did not close in time; abandoned');
      });
      if (ends) await stopped;
    },
    report: (error) => log.warn({ err: error, lane }, 'lease of a lane could not be acquired'),
  });
  return {
    name: `lane ${lane}`,
    stop() {
      ends = true;
      return stop();
    },
  };
}

async function acquired(client: PostgresClient, lane: number): Promise<boolean> {
  const { rows } = await client.query<{ taken: boolean }>('select pg_try_advisory_lock($1, $2) as taken', [
    LOCK_SPACE,
    lane,
  ]);
  return rows[0]!.taken;
}
