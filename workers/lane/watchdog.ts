import { type Service, withTimeout } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll } from '../../src/platform/poll.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { shardOfLane } from '../../src/queue/lanes.ts';
import { serverOfShard } from '../../src/queue/open-redis.ts';

/** Checks without progress, one per lock duration, before a lane is reopened, and again before the process exits. */
const PATIENCE = 3;

/**
 * Fraction of the lock duration above which a reply counts as slow. On such a network, a lane may itself be waiting for
 * replies. A slow check is ignored, since a new connection or process would not help.
 */
const SLOW = 0.1;

interface WatchdogOptions {
  /** Connection of the lanes, which may hang. */
  connection: QueueConnection;
  /** Separate connection for the watchdog's own queries. */
  observer: QueueConnection;
  /** Lock duration of a job in milliseconds; also the interval between two checks. */
  lockDuration: number;
  log: Log;
  /** Ends the process, so that its supervisor restarts it. */
  exit(): void;
}

interface Watched {
  reopen(): void;
  /**
   * First waiting job at the last check, and the number of checks that have found the same job since; absent if no job
   * waited.
   */
  seen?: { head: string; checks: number } | undefined;
  reopened: boolean;
}

/**
 * Detects lanes of this process that have waiting jobs but no active job. The cause is a half-open connection or a
 * BullMQ worker that has stopped polling. The watchdog first reconnects and reopens the lane; if the lane still makes
 * no progress, it ends the process. While the queue itself does not answer it only waits: a new process would not help.
 */
export function startWatchdog({ connection, observer, lockDuration, log, exit }: WatchdogOptions) {
  const lanes = new Map<number, Watched>();

  async function check(): Promise<void> {
    // Lanes are checked in parallel, so that an unavailable shard does not delay the checks of the others.
    await Promise.all([...lanes].map(([lane, watched]) => checkLane(lane, watched)));
  }

  async function checkLane(lane: number, watched: Watched): Promise<void> {
    try {
      const startedAt = performance.now();
      const head = await headOf(lane);
      if (performance.now() - startedAt < SLOW * lockDuration) await judge(lane, watched, head);
    } catch {
      // While the queue is unavailable, missing progress is not the fault of the lane.
      watched.seen = undefined;
    }
  }

  async function judge(lane: number, watched: Watched, head: string | undefined): Promise<void> {
    const { seen } = watched;
    if (head === undefined || seen?.head !== head) {
      watched.seen = head === undefined ? undefined : { head, checks: 0 };
      watched.reopened = false;
      return;
    }
    if (++seen.checks < PATIENCE) return;
    seen.checks = 0;
    if (watched.reopened) {
      if (!(await answers(lane))) return;
      log.fatal({ lane }, 'lane has waiting jobs and makes no progress, also after it was reopened; exiting');
      exit();
      return;
    }
    watched.reopened = true;
    log.error({ lane }, 'lane has waiting jobs and makes no progress; reopening it');
    connection.redis?.disconnect(true);
    watched.reopen();
  }

  /** Returns whether the lanes' own connection answers. If it does not, a new process would not help. */
  async function answers(lane: number): Promise<boolean> {
    const { redis, layout } = connection;
    if (!redis) return true;
    const ping = async () => void (await serverOfShard(redis, shardOfLane(layout, lane)).ping());
    return withTimeout(SLOW * lockDuration, ping()).then(
      () => true,
      () => false,
    );
  }

  /** Returns the first waiting job of a lane without an active job; undefined if no job waits or the lane is paused. */
  async function headOf(lane: number): Promise<string | undefined> {
    const { laneStore } = observer;
    if (!laneStore.ready()) throw new Error('the queue is not connected');
    const reads = Promise.all([laneStore.depth(lane), laneStore.isPaused(lane), laneStore.head(lane, 1)]);
    const [{ active }, paused, [next]] = await withTimeout(lockDuration, reads);
    return active > 0 || paused ? undefined : next;
  }

  const poller = poll(lockDuration, check);
  return {
    name: 'watchdog',
    async stop() {
      // A running check may wait for the queue, so the stop does not wait for it.
      void poller.stop();
    },

    /** Opens a lane and watches it. Stopping the returned service ends both. */
    watch(lane: number, open: () => Service): Service {
      let running = open();
      const left: Promise<void>[] = [];
      lanes.set(lane, {
        reopened: false,
        reopen() {
          // A lane that hangs may never stop, so its successor does not wait for it.
          left.push(running.stop().catch(() => {}));
          running = open();
        },
      });
      return {
        name: running.name,
        async stop() {
          lanes.delete(lane);
          await Promise.all([running.stop(), ...left]);
        },
      };
    },
  };
}
