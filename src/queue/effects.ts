import { messageOf } from '../platform/log.ts';
import { backOff, rest } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import { readApplied } from '../store/ledger.ts';
import { readOutcomes } from '../store/outcomes.ts';

/**
 * Milliseconds before the first check: about the time that an idle worker needs to apply a job. Each further check
 * waits longer.
 */
const FIRST_PAUSE_MS = 3;
/** Maximum milliseconds between two checks while no new caller arrives. */
const MAX_PAUSE_MS = 25;

interface Watching {
  /** Milliseconds to wait. */
  patience: number;
  /** Aborts the wait. */
  leaving?: AbortSignal;
  /** Called for each check that the store did not answer. */
  onTrouble?(error: unknown): void;
}

/** The result when the wait ended. */
interface Watched<End> {
  /** Results of the finished ids. */
  ends: Map<string, End>;
  /** Ids that have not finished. */
  missing: Set<string>;
  /** Error of the last check; absent if the store answered. */
  trouble?: unknown;
}

interface Waiter<End> extends Watched<End> {
  onTrouble: (error: unknown) => void;
  settle(): void;
}

/**
 * Creates a watcher that waits until jobs in the lanes have finished. The store gets one query at a time, regardless
 * of the number of waiting callers.
 *
 * @param ask returns the finished ids with their results
 * @returns a function that waits until all ids have finished, `patience` is over or `leaving` is aborted; it never
 *   rejects
 */
function createWatcher<End>(fetchEnded: (ids: string[]) => Promise<Map<string, End>>) {
  const waiters = new Set<Waiter<End>>();
  let isNew = false;
  let isPolling = false;

  async function pollUntilSettled(): Promise<void> {
    isPolling = true;
    let pause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS);
    while (waiters.size > 0) {
      if (isNew) pause = backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS);
      isNew = false;
      await rest(pause());
      const batch = [...waiters];
      const ids = new Set(batch.flatMap(({ missing }) => [...missing]));
      try {
        const ended = await fetchEnded([...ids]);
        for (const waiter of batch) take(waiter, ended);
      } catch (error) {
        for (const waiter of batch) {
          waiter.trouble = error;
          waiter.onTrouble(error);
        }
      }
    }
    isPolling = false;
  }

  function take(waiter: Waiter<End>, ended: Map<string, End>): void {
    delete waiter.trouble;
    for (const id of waiter.missing) {
      if (!ended.has(id)) continue;
      waiter.ends.set(id, ended.get(id)!);
      waiter.missing.delete(id);
    }
    if (waiter.missing.size === 0) waiter.settle();
  }

  return function watch(
    ids: Iterable<string>,
    { patience, leaving, onTrouble = () => {} }: Watching,
  ): Promise<Watched<End>> {
    return new Promise((resolve) => {
      const waiter: Waiter<End> = { ends: new Map(), missing: new Set(ids), onTrouble, settle };
      if (waiter.missing.size === 0 || leaving?.aborted) return resolve(waiter);
      const timer = setTimeout(settle, patience);
      leaving?.addEventListener('abort', settle);
      waiters.add(waiter);
      isNew = true;
      if (!isPolling) void pollUntilSettled();

      function settle(): void {
        clearTimeout(timer);
        leaving?.removeEventListener('abort', settle);
        waiters.delete(waiter);
        resolve(waiter);
      }
    });
  };
}

/** Waits until envelopes have taken effect. */
export function watchApplied(pool: Pool) {
  return createWatcher(async (ids) => new Map([...(await readApplied(pool, ids))].map((id) => [id, true])));
}

/** Waits until the workers have recorded the outcome of objects: an error, or null for success. */
function watchOutcomes(pool: Pool) {
  return createWatcher(
    async (ids) => new Map((await readOutcomes(pool, ids)).map(({ objectId, error }) => [objectId, error])),
  );
}

export type WatchApplied = ReturnType<typeof watchApplied>;

/** Milliseconds that a request waits for the workers. Clients time out after 2 s. */
const DEADLINE = 1500;

/** Reason in the log if the objects have not taken effect in the time that the response can wait. */
export const UNDECIDED = 'the workers have not come to it yet';

/** The errors of all objects, or the reason why the outcome is not known. */
type Settled = { errors: ReadonlyMap<string, string> } | { unknown: string };

/**
 * Waits for objects that a request has stored in the queue. Never rejects: if the store does not answer, the outcome
 * is not known yet.
 */
export function createEffects(pool: Pool) {
  const applied = watchApplied(pool);
  const outcomes = watchOutcomes(pool);
  return {
    /** @returns whether all envelopes have taken effect within `patience` milliseconds */
    async awaited(envelopeIds: string[], patience: number): Promise<boolean> {
      return (await applied(envelopeIds, { patience })).missing.size === 0;
    },

    /** @returns the error of each object that did not take effect, by object id; `unknown` after a time-out */
    async outcomes(objectIds: string[]): Promise<Settled> {
      const { ends, missing, trouble } = await outcomes(objectIds, { patience: DEADLINE });
      if (missing.size > 0) return { unknown: trouble === undefined ? UNDECIDED : messageOf(trouble) };
      return { errors: new Map([...ends].flatMap(([id, error]) => (error === null ? [] : [[id, error]]))) };
    },
  };
}

export type Effects = ReturnType<typeof createEffects>;
