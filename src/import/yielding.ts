import { poll, rest, until } from '../platform/poll.ts';
import { type SeenProcess, SILENT_SECONDS } from '../store/processes.ts';

/** Rows of a chunk without and with live traffic. A live object may have to wait for one chunk. */
const ROWS = 2000;
const ROWS_WITH_LIVE_TRAFFIC = 250;

/**
 * Maximum number of jobs waiting in each lane, without and with live traffic. With fewer, workers would be
 * idle between two checks.
 */
const WAITING = 40;
const WAITING_WITH_LIVE_TRAFFIC = 3;

/**
 * Pause with live traffic, as a multiple of the preceding work: the import works at most a quarter of the
 * time.
 */
const PAUSE_FACTOR = 3;

/**
 * Maximum milliseconds of a pause. The time of a chunk includes waiting for an unavailable queue, which is
 * not work.
 */
const MAX_PAUSE_MS = 2000;

/** Returns the milliseconds to pause with live traffic after the given milliseconds of work. */
export const restAfter = (worked: number): number => Math.min(MAX_PAUSE_MS, PAUSE_FACTOR * worked);

/** Milliseconds between two checks of full lanes. */
const LANE_CHECK_MS = 20;

/** Milliseconds between two checks of the traffic of web processes. */
const TRAFFIC_CHECK_MS = 1000;

/** Milliseconds of waiting for the lanes after which the user is informed. */
const NOTIFY_AFTER_MS = 10_000;

/** Throttles an import in favour of live traffic. */
export interface Yielding {
  /** Maximum number of rows of the next chunk. */
  chunkRows(): number;
  /** Resolves when the next chunk may be added, or immediately when `leaving` aborts. */
  wait(leaving: AbortSignal): Promise<void>;
  /** Reports the milliseconds of work of a chunk. */
  worked(milliseconds: number): void;
  stop(): Promise<void>;
}

/** The fields of a heartbeat that are used. */
export type Heartbeat = Pick<SeenProcess, 'name' | 'silentSeconds' | 'objectsPerSecond'>;

interface YieldingOptions {
  /** Returns the last heartbeat of each process. */
  heartbeats(): Promise<readonly Heartbeat[]>;
  /** Returns the number of jobs that wait in all lanes. */
  waiting(): number;
  lanes: number;
  /** High-water mark of the queue. An import fills at most half of it. */
  highWaterMark: number;
  /** Called once when the lanes have been full for a long time. */
  onWait(): void;
}

const takesLiveTraffic = ({ name, silentSeconds, objectsPerSecond }: Heartbeat): boolean =>
  name === 'web' && silentSeconds < SILENT_SECONDS && objectsPerSecond > 0;

/**
 * Throttles an import while the heartbeats of web processes report live traffic. Chunks are then small, lanes
 * are kept nearly empty, and the import pauses for most of the time.
 */
export function createYielding(options: YieldingOptions): Yielding {
  const { heartbeats, waiting, lanes, highWaterMark, onWait } = options;
  let hasLiveTraffic = true;
  let pauseUntil = 0;
  let isNotified = false;
  const trafficPoller = poll(TRAFFIC_CHECK_MS, async () => {
    hasLiveTraffic = (await heartbeats()).some(takesLiveTraffic);
  });
  // Assume live traffic until the first check has ended.
  void trafficPoller.now();

  const maxWaiting = () =>
    Math.min(highWaterMark / 2, lanes * (hasLiveTraffic ? WAITING_WITH_LIVE_TRAFFIC : WAITING));

  return {
    chunkRows: () => (hasLiveTraffic ? ROWS_WITH_LIVE_TRAFFIC : ROWS),
    async wait(leaving) {
      const started = performance.now();
      if (hasLiveTraffic && pauseUntil > started) await rest(pauseUntil - started, leaving);
      await until(() => waiting() < maxWaiting(), {
        ...{ every: LANE_CHECK_MS, leaving },
        inVain() {
          if (isNotified || performance.now() - started < NOTIFY_AFTER_MS) return;
          isNotified = true;
          onWait();
        },
      });
    },
    worked(milliseconds) {
      pauseUntil = performance.now() + restAfter(milliseconds);
    },
    stop: () => trafficPoller.stop(),
  };
}
