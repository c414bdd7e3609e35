import { monitorEventLoopDelay } from 'node:perf_hooks';
import type { Source, SourceError, SourceRow } from '../../src/integrations/source.ts';

/** Result of reading a foreign source, and its cost for this process. */
export interface Ordeal {
  error: SourceError | undefined;
  rows: number;
  milliseconds: number;
  /** Longest time that the event loop was blocked, in milliseconds. */
  stall: number;
  /** Megabytes by which the resident memory grew at most. */
  grown: number;
}

const LOOK_MS = 20;

/** Opens a source, describes it, reads all of it and closes it, as a run does. */
export async function endure(
  open: () => Promise<Source>,
  take: (rows: SourceRow[]) => Promise<void> | void = () => {},
): Promise<Ordeal> {
  const before = process.memoryUsage.rss();
  let most = before;
  const looking = setInterval(() => {
    most = Math.max(most, process.memoryUsage.rss());
  }, LOOK_MS);
  const delay = monitorEventLoopDelay({ resolution: 10 });
  delay.enable();
  const started = performance.now();
  let rows = 0;
  let error: SourceError | undefined;
  try {
    const source = await open();
    try {
      await source.describe();
      const { signal } = new AbortController();
      for await (const some of source.rowsSince(undefined, { batch: 500, signal })) {
        rows += some.length;
        await take(some);
      }
    } finally {
      await source.close();
    }
  } catch (caught) {
    error = caught as SourceError;
  }
  const milliseconds = performance.now() - started;
  delay.disable();
  clearInterval(looking);
  most = Math.max(most, process.memoryUsage.rss());
  return { error, rows, milliseconds, stall: delay.max / 1e6, grown: (most - before) / 1_048_576 };
}
