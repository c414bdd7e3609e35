import type { Config } from '../../src/platform/config.ts';
import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { keepAnswering } from '../../src/queue/redis.ts';
import type { PostgresClient } from '../../src/store/database.ts';
import { holdSession } from '../../src/store/held-session.ts';
import { type Lane, type LaneContext, startLane } from './lane.ts';
import { startWatchdog } from './watchdog.ts';

/** The share of a stop's deadline after which the batch in hand is given up. */
const SHARE_OF_DEADLINE = 0.6;

export interface LanesOptions extends LaneContext {
  config: LaneContext['config'] & Pick<Config, 'SHUTDOWN_TIMEOUT_MS'>;
  databaseUrl: string;
  /** Another connection, through which the watchdog asks the queue. */
  observer: QueueConnection;
}

export interface Lanes extends Service {
  /** Those that stand at a fence stand there no longer: the queue has lost what they wait for. */
  leaveFences(): void;
}

/**
 * All lanes of this process, each under the watchdog, and behind a lease where the queue lives in Postgres. Stopped,
 * each finishes the batch in hand; one that cannot be finished, because the store is away, is left to another worker.
 */
export function startLanes(options: LanesOptions): Lanes {
  const { connection, observer, coalescer, config, databaseUrl, log } = options;
  /** By their numbers. */
  const open: (Lane | undefined)[] = [];
  const watches = [connection, observer].map((one) => keepAnswering(one, config.LOCK_DURATION_MS, log));
  const watchdog = startWatchdog({
    ...{ connection, observer, log, lockDuration: config.LOCK_DURATION_MS },
    exit: () => process.exit(1),
  });

  const openLane = (lane: number): Service =>
    watchdog.watch(lane, () => {
      open[lane] = startLane(lane, options);
      return open[lane];
    });
  const leaseLane = (lane: number): Service =>
    withLaneLease({
      ...{ databaseUrl, lane, log, patience: config.LOCK_DURATION_MS },
      start: () => openLane(lane),
    });
  const lanes = Array.from({ length: config.LANES }, (_, lane) =>
    connection.kind === 'postgres' ? leaseLane(lane) : openLane(lane),
  );

  return {
    name: 'lanes',
    leaveFences() {
      for (const lane of open) lane?.leaveFence();
    },
    async stop() {
      const patience = new Promise<void>((resolve) => {
        setTimeout(() => {
          coalescer.abandon();
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
  start(): Service;
  log: Log;
}

/**
 * Works a lane only while this process holds its lease: a session-level advisory lock, which Postgres gives
 * back when the process dies or goes silent. BullMQ's Postgres backend needs it for speed alone, not for
 * order or exactness: a second worker of a lane that has a job in work asks for the next one without a pause.
 */
export function withLaneLease({ databaseUrl, lane, patience, start, log }: LaneLease): Service {
  const stop = holdSession({
    databaseUrl,
    options: { options: `-c idle_session_timeout=${patience}` },
    beat: patience / BEATS,
    retry: RETRY_MS,
    async hold(client, { lost, isOver }) {
      // Told to stop meanwhile, it lets go of what it was granted.
      if (!(await acquired(client, lane)) || isOver()) return;
      log.info({ lane }, 'lane taken');
      const service = start();
      await lost;
      await service.stop();
    },
    report: (error) => log.warn({ err: error, lane }, 'the lease of a lane could not be asked for'),
  });
  return { name: `lane ${lane}`, stop };
}

async function acquired(client: PostgresClient, lane: number): Promise<boolean> {
  const { rows } = await client.query<{ taken: boolean }>('select pg_try_advisory_lock($1, $2) as taken', [
    LOCK_SPACE,
    lane,
  ]);
  return rows[0]!.taken;
}
