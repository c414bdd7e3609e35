import { backOff, rest } from '../platform/poll.ts';

/** Milliseconds before a worker that could not be opened is opened again: the first and the longest pause. */
const FIRST_PAUSE_MS = 250;
const MAX_PAUSE_MS = 10_000;

/** The part of a BullMQ worker that its owner needs after it was opened. */
interface OpenedWorker {
  waitUntilReady(): Promise<unknown>;
  run(): Promise<void>;
  close(force?: boolean): Promise<void>;
}

/** Worker option for `runWorker`, which starts the worker itself. */
export const NOT_RUNNING = { autorun: false } as const;

/**
 * Runs a BullMQ worker once it is open, and replaces it as long as it cannot be opened. BullMQ caches the failure of
 * a first reply for the lifetime of the worker. Such a worker never takes a job, and once it runs it requests jobs in
 * a tight loop and so blocks its whole process.
 *
 * @param open opens a worker that does not run, see `NOT_RUNNING`, and attaches its listeners
 */
export function runWorker(open: () => OpenedWorker): Pick<OpenedWorker, 'close'> {
  const stopping = new AbortController();
  let worker = open();
  void runOnceOpen();

  async function runOnceOpen(): Promise<void> {
    const nextPause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS);
    while (!(await isOpened())) {
      // A worker whose server does not answer may never close, so its successor does not wait for it.
      void worker.close(true).catch(() => {});
      await rest(nextPause(), stopping.signal);
      if (stopping.signal.aborted) return;
      worker = open();
    }
    // The worker reports its errors as events.
    if (!stopping.signal.aborted) await worker.run().catch(() => {});
  }

  function isOpened(): Promise<boolean> {
    return worker.waitUntilReady().then(
      () => true,
      () => stopping.signal.aborted,
    );
  }

  return {
    close() {
      stopping.abort();
      return worker.close();
    },
  };
}

/**
 * Returns how many seconds a worker of BullMQ waits for a job before it asks again. Postgres notifies a waiting
 * worker of each job, except of a stalled one that the search of another worker gives back.
 */
export function drainDelayOf(
  { kind }: { kind: 'redis' | 'postgres' },
  { atLeast, stalledInterval }: { atLeast: number; stalledInterval: number },
): number {
  return kind === 'postgres' ? Math.max(atLeast, stalledInterval / 1000) : atLeast;
}
