import { poll, rest, until } from '../platform/poll.ts';
import { type SeenProcess, SILENT_SECONDS } from '../store/processes.ts';

/** Rows of a chunk while nobody else sends anything, and while somebody does: a live object waits behind one of those. */
const ROWS = 2000;
const ROWS_BESIDE_OTHERS = 250;

/** Jobs that may wait in each lane, likewise: with fewer, workers would be idle between two looks. */
const WAITING = 40;
const WAITING_BESIDE_OTHERS = 3;

/** Rests beside others, in times of the work before: a quarter of the time at most. */
const REST = 3;

/** Milliseconds of the longest rest: a chunk that has waited for a queue which was away was no work of that long. */
const LONGEST_REST_MS = 2000;

/** Milliseconds to rest beside others behind so many of work. */
export const restAfter = (worked: number): number => Math.min(LONGEST_REST_MS, REST * worked);

/** Milliseconds between two looks at lanes that hold enough. */
const ASK_AGAIN_MS = 20;

/** Milliseconds between two looks at what web processes take. */
const LOOK_MS = 1000;

/** Milliseconds of waiting for the lanes after which a person is told. */
const SAY_AFTER_MS = 10_000;

/** What keeps an import behind live traffic. */
export interface Yielding {
  /** Most rows of the next chunk. */
  chunkRows(): number;
  /** Resolves when the next chunk may go; at once when told to leave. */
  wait(leaving: AbortSignal): Promise<void>;
  /** A chunk took so many milliseconds of work. */
  worked(milliseconds: number): void;
  stop(): Promise<void>;
}

/** What is asked of a heartbeat. */
export type Heartbeat = Pick<SeenProcess, 'name' | 'silentSeconds' | 'objectsPerSecond'>;

export interface YieldingOptions {
  /** The last one of each process. */
  heartbeats(): Promise<readonly Heartbeat[]>;
  /** Jobs that wait in all lanes. */
  waiting(): number;
  lanes: number;
  /** Of the queue: an import keeps below half of it. */
  highWaterMark: number;
  /** Hears that the lanes have been full for long. */
  onWait(): void;
}

const takesLiveTraffic = ({ name, silentSeconds, objectsPerSecond }: Heartbeat): boolean =>
  name === 'web' && silentSeconds < SILENT_SECONDS && objectsPerSecond > 0;

/**
 * Gives way to live traffic, as the heartbeats of web processes tell it. Beside it chunks are small, lanes are kept
 * nearly empty, and the import rests for most of the time.
 */
export function createYielding(options: YieldingOptions): Yielding {
  const { heartbeats, waiting, lanes, highWaterMark, onWait } = options;
  let isBesideOthers = true;
  let restUntil = 0;
  let isSaid = false;
  const looks = poll(LOOK_MS, async () => {
    isBesideOthers = (await heartbeats()).some(takesLiveTraffic);
  });
  // It begins as if there were others, until that is known.
  void looks.now();

  const most = () => Math.min(highWaterMark / 2, lanes * (isBesideOthers ? WAITING_BESIDE_OTHERS : WAITING));

  return {
    chunkRows: () => (isBesideOthers ? ROWS_BESIDE_OTHERS : ROWS),
    async wait(leaving) {
      const started = performance.now();
      if (isBesideOthers && restUntil > started) await rest(restUntil - started, leaving);
      await until(() => waiting() < most(), {
        ...{ every: ASK_AGAIN_MS, leaving },
        inVain() {
          if (isSaid || performance.now() - started < SAY_AFTER_MS) return;
          isSaid = true;
          onWait();
        },
      });
    },
    worked(milliseconds) {
      restUntil = performance.now() + restAfter(milliseconds);
    },
    stop: () => looks.stop(),
  };
}
