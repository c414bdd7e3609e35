import { nowDate } from '../../src/platform/clock.ts';
import type { Config } from '../../src/platform/config.ts';
import { type Service, within } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { layoutOf } from '../../src/queue/lanes.ts';
import { keepAnswering } from '../../src/queue/redis.ts';
import { READS } from '../../src/queue/wire.ts';
import { holdSession } from '../../src/store/connections.ts';
import type { PostgresClient } from '../../src/store/database.ts';
import type { HeldLane } from '../../src/store/processes.ts';
import { type LaneContext, LaneWorker } from './lane-worker.ts';
import type { Scheduler } from './scheduler.ts';
import { shareLanes, type WorkedLane } from './share.ts';
import { startWatchdog } from './watchdog.ts';

/** The share of a stop's deadline after which the batch in hand is given up. */
const SHARE_OF_DEADLINE = 0.6;

/** Milliseconds for which a lane is left to workers of a later release before this one looks at it again. */
const STAND_BACK_MS = 5000;

/** Milliseconds between two lines about the same lane. */
const WARN_MS = 60_000;

export interface LanesOptions extends Omit<LaneContext, 'laneStore'> {
  scheduler: Pick<Scheduler, 'abandon' | 'accounts' | 'apply' | 'step'>;
  connection: QueueConnection;
  /** Of the process, a UUID. */
  id: string;
  config: LaneContext['config'] & Pick<Config, 'SHUTDOWN_TIMEOUT_MS'>;
  databaseUrl: string;
  /** Another connection, through which the watchdog asks the queue. */
  observer: QueueConnection;
  /** Called when a lane has been opened or closed. */
  onChange?(): void;
}

export interface Lanes extends Service {
  /** Those that stand at a fence stand there no longer: the queue has lost what they wait for. */
  leaveFences(): void;
  /** Lanes that came to an envelope of a version that this worker does not read, as far as they have not gone on since. */
  unreadable(): Unreadable[];
  /** Lanes that this process works at present, in order. */
  held(): HeldLane[];
}

export interface Unreadable {
  lane: number;
  version: number;
  /** The latest version that this worker reads. */
  reads: number;
}

/**
 * The lanes of this process, each under the watchdog. On Redis they are its share of those of the fleet; where the
 * queue lives in Postgres, those of which it has the lease. Stopped, each finishes the batch in hand; one that cannot
 * be finished, because the store is away, is left to another worker. So is one that has come to an envelope of a later
 * release: its order stands, and nothing behind it overtakes it.
 */
export function startLanes(options: LanesOptions): Lanes {
  const { id, connection, observer, scheduler, config, databaseUrl, log, reads = READS } = options;
  /** By their numbers. */
  const open: (LaneWorker | undefined)[] = [];
  const watches = [connection, observer].map((one) => keepAnswering(one, config.LOCK_DURATION_MS, log));
  const watchdog = startWatchdog({
    ...{ connection, observer, log, lockDuration: config.LOCK_DURATION_MS },
    exit: () => process.exit(1),
  });

  /** By lane. */
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

  /** By lane. */
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
    const service = watchdog.watch(lane, () => {
      open[lane] = new LaneWorker(lane, { ...options, laneStore: connection.laneStore, onUnreadable });
      return open[lane];
    });
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
    leaveFences() {
      for (const lane of open) lane?.leaveFence();
    },
    unreadable() {
      const now = performance.now();
      // Each look at it comes a rest after the one before.
      const isThere = ({ at }: { at: number }) => now - at < 2 * STAND_BACK_MS;
      return [...unreadable]
        .filter(([, found]) => isThere(found))
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

/** Milliseconds between two tries for a lane that another process works, and the longest wait of a take-over. */
const RETRY_MS = 250;

/** A holder says so many times within its patience that it is still there. */
const BEATS = 4;

export interface LaneLease {
  databaseUrl: string;
  lane: number;
  /** Milliseconds after which a silent holder loses the lease: frozen, or on a machine that is gone. */
  patience: number;
  /** Begins to work the lane; what it returns is stopped when the lease is lost. */
  start(): Service & { left?: Promise<unknown> };
  log: Log;
}

/**
 * Works a lane only while this process holds its lease: a session-level advisory lock, which Postgres gives back when
 * the process dies or goes silent. BullMQ's Postgres backend needs it for speed alone, not for order or exactness. A
 * second worker of a lane that has a job in work asks for the next one without a pause.
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
      // Told to stop meanwhile, it lets go of what it was granted.
      if (!(await acquired(client, lane)) || isOver()) return;
      log.info({ lane }, 'lane acquired');
      const service = start();
      const leaves = service.left?.then(() => {
        isLeft = true;
      });
      await Promise.race([lost, leaves ?? lost]);
      const stopped = service.stop();
      // One that hangs may never end: nothing waits for it but the end of the process.
      await within(patience, stopped).catch(() => {
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
