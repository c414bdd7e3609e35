import { type Service, within } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll } from '../../src/platform/poll.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { shardOfLane } from '../../src/queue/lanes.ts';
import { serverOfShard } from '../../src/queue/open-redis.ts';

/** Looks, a lock duration apart, that see nothing happen until a lane counts as silent; after as many again the process ends. */
const PATIENCE = 3;

/**
 * Share of a lock duration from which on an answer was slow. Over a network on which a question takes that long a lane
 * may well be busy asking. Such a look says nothing, since a new connection or process would be no better off.
 */
const SLOW = 0.1;

export interface WatchdogOptions {
  /** That of the lanes; it may hang. */
  connection: QueueConnection;
  /** Another one, through which the queue is asked. */
  observer: QueueConnection;
  /** Milliseconds. */
  lockDuration: number;
  log: Log;
  /** Ends the process, so that its supervisor starts it anew. */
  exit(): void;
}

interface Watched {
  reopen(): void;
  /** The job that waited first when it was looked at last, and how many looks since have found it there; absent: none did. */
  seen?: { head: string; looks: number } | undefined;
  reopened: boolean;
}

/**
 * Looks after lanes that this process believes it works, and whose jobs wait all the same with none in work. The cause
 * is a connection that hangs half open, or a BullMQ worker that has stopped asking. First the connection is made anew
 * and the lane reopened; a lane that stays silent ends the process. While the queue itself does not answer nothing is
 * ended, since a new process would not be better off.
 */
export function startWatchdog({ connection, observer, lockDuration, log, exit }: WatchdogOptions) {
  const lanes = new Map<number, Watched>();

  async function look(): Promise<void> {
    // Side by side: those of a shard that is away keep nobody from looking at the others.
    await Promise.all([...lanes].map(([lane, watched]) => lookAt(lane, watched)));
  }

  async function lookAt(lane: number, watched: Watched): Promise<void> {
    try {
      const asked = performance.now();
      const head = await headOf(lane);
      if (performance.now() - asked < SLOW * lockDuration) await judge(lane, watched, head);
    } catch {
      // The queue is away for everyone: silence is nobody's fault.
      watched.seen = undefined;
    }
  }

  async function judge(lane: number, watched: Watched, head: string | undefined): Promise<void> {
    const { seen } = watched;
    if (head === undefined || seen?.head !== head) {
      watched.seen = head === undefined ? undefined : { head, looks: 0 };
      watched.reopened = false;
      return;
    }
    if (++seen.looks < PATIENCE) return;
    seen.looks = 0;
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

  /** Whether the lanes' own connection is well: if not, a new process would be no better off than a new connection. */
  async function answers(lane: number): Promise<boolean> {
    const { redis, layout } = connection;
    if (!redis) return true;
    const ask = async () => void (await serverOfShard(redis, shardOfLane(layout, lane)).ping());
    return within(SLOW * lockDuration, ask()).then(
      () => true,
      () => false,
    );
  }

  /** The next job of a lane of which nothing is in work; undefined: there is none, or somebody lets it wait. */
  async function headOf(lane: number): Promise<string | undefined> {
    const { laneStore } = observer;
    if (!laneStore.ready()) throw new Error('the queue is not connected');
    const asked = Promise.all([laneStore.depth(lane), laneStore.isPaused(lane), laneStore.head(lane, 1)]);
    const [{ active }, paused, [next]] = await within(lockDuration, asked);
    return active > 0 || paused ? undefined : next;
  }

  const looks = poll(lockDuration, look);
  return {
    name: 'watchdog',
    async stop() {
      // A look may wait for the queue.
      void looks.stop();
    },

    /** Opens a lane and keeps an eye on it; stopping what is returned ends both. */
    watch(lane: number, open: () => Service): Service {
      let running = open();
      const left: Promise<void>[] = [];
      lanes.set(lane, {
        reopened: false,
        reopen() {
          // One that hangs may never end: its successor does not wait for it.
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
