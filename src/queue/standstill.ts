import type { Log } from '../platform/log.ts';

/** Milliseconds between two lines about the same standstill. */
const REPEAT_MS = 60_000;

export interface StandstillOptions {
  /** Milliseconds for which jobs may wait while nobody takes any. */
  afterMs: number;
  /** Whether any worker has said a moment ago that it is there. */
  hasWorkers(): Promise<boolean>;
}

/**
 * A fleet stands still when jobs wait and nobody takes any: there is no worker, or none that works. The heads of the
 * lanes do not change then, and none is in work; or one is, in the hands of a worker that is gone. A batch that takes long
 * is no standstill.
 */
export function createStandstill({ afterMs, hasWorkers }: StandstillOptions, log: Log) {
  let heads = '';
  let movedAt = performance.now();
  /** By `performance.now()`; undefined: it moves. */
  let since: number | undefined;
  let toldAt = Number.NEGATIVE_INFINITY;

  function moves(): void {
    movedAt = performance.now();
    if (since === undefined) return;
    log.info({ seconds: Math.round((movedAt - since) / 1000) }, 'the fleet moves again');
    since = undefined;
    toldAt = Number.NEGATIVE_INFINITY;
  }

  /**
   * @param ids of the head of each lane that has one
   * @param countActive jobs in work, of all lanes
   */
  async function look(ids: string[], countActive: () => Promise<number>): Promise<void> {
    const found = ids.join();
    if (found === '' || found !== heads) {
      heads = found;
      return moves();
    }
    if (performance.now() - movedAt < afterMs) return;
    const workers = await hasWorkers();
    if (workers && (await countActive()) > 0) return moves();
    since ??= movedAt;
    const now = performance.now();
    if (now - toldAt < REPEAT_MS) return;
    toldAt = now;
    const why = workers
      ? 'workers are there and take none: look at their logs and /readyz'
      : 'no worker is there: start one (a line of the Procfile: worker)';
    log.error(
      { seconds: Math.round((now - since) / 1000), workers },
      `the fleet stands still: jobs wait, and ${why}`,
    );
  }

  return {
    look,
    /** The queue does not answer: nothing is known, and its being away is told elsewhere. */
    forget: moves,
    /** 0: it moves. */
    seconds: () => (since === undefined ? 0 : (performance.now() - since) / 1000),
  };
}
