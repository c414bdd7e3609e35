import { messageOf } from '../platform/log.ts';
import { backOff, rest } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import { readApplied } from '../store/ledger.ts';
import { readOutcomes } from '../store/outcomes.ts';

/** Milliseconds before the first look, which is about what a worker at rest takes; each further one waits longer. */
const FIRST_PAUSE_MS = 3;
/** Milliseconds between two looks at most, while nobody new waits. */
const LONGEST_PAUSE_MS = 25;

export interface Watching {
  /** Milliseconds. */
  patience: number;
  /** Ends the wait. */
  leaving?: AbortSignal;
  /** Hears of each look that the store did not answer. */
  onTrouble?(error: unknown): void;
}

/** What was seen when the wait ended. */
export interface Watched<End> {
  /** By id, of those that have ended. */
  ends: Map<string, End>;
  /** The ids of those that have not. */
  missing: Set<string>;
  /** Why the store did not answer the last look; absent: it did. */
  trouble?: unknown;
}

interface Waiter<End> extends Watched<End> {
  onTrouble: (error: unknown) => void;
  settle(): void;
}

/**
 * A watcher of effects: waits until what was put into the lanes has ended. However many wait, the store is asked one
 * question at a time.
 *
 * @param ask those of the ids that have ended by now, with how
 * @returns waits until all of the ids have ended, `patience` is over or `leaving` is aborted; never rejects
 */
export function createWatcher<End>(ask: (ids: string[]) => Promise<Map<string, End>>) {
  const waiters = new Set<Waiter<End>>();
  let isNew = false;
  let looking = false;

  async function lookUntilSettled(): Promise<void> {
    looking = true;
    let pause = backOff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS);
    while (waiters.size > 0) {
      if (isNew) pause = backOff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS);
      isNew = false;
      await rest(pause());
      const asking = [...waiters];
      const ids = new Set(asking.flatMap(({ missing }) => [...missing]));
      try {
        const ended = await ask([...ids]);
        for (const waiter of asking) take(waiter, ended);
      } catch (error) {
        for (const waiter of asking) {
          waiter.trouble = error;
          waiter.onTrouble(error);
        }
      }
    }
    looking = false;
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
      if (!looking) void lookUntilSettled();

      function settle(): void {
        clearTimeout(timer);
        leaving?.removeEventListener('abort', settle);
        waiters.delete(waiter);
        resolve(waiter);
      }
    });
  };
}

/** Waits for envelopes to take effect. */
export function watchApplied(pool: Pool) {
  return createWatcher(async (ids) => new Map([...(await readApplied(pool, ids))].map((id) => [id, true])));
}

/** Waits until the workers have written down how objects ended: with an error, or null where one took effect. */
function watchOutcomes(pool: Pool) {
  return createWatcher(
    async (ids) => new Map((await readOutcomes(pool, ids)).map(({ objectId, error }) => [objectId, error])),
  );
}

export type WatchApplied = ReturnType<typeof watchApplied>;

/** Milliseconds that a request waits for the workers: clients give up after 2 s. */
const DEADLINE = 1500;

/** What the log says of a request whose answer could wait no longer. */
export const UNDECIDED = 'the workers have not come to it yet';

/** How all objects have ended, or why that is not known. */
export type Settled = { errors: ReadonlyMap<string, string> } | { unknown: string };

/**
 * Waits for what a request has put on disk. Never rejects: a store that cannot be asked only means that the end is not
 * known yet.
 */
export function createEffects(pool: Pool) {
  const applied = watchApplied(pool);
  const outcomes = watchOutcomes(pool);
  return {
    /** @returns whether all of the envelopes have taken effect within so many milliseconds */
    async awaited(envelopeIds: string[], patience: number): Promise<boolean> {
      return (await applied(envelopeIds, { patience })).missing.size === 0;
    },

    /** @returns by the id of each object that did not take effect, why; `unknown` when it took too long */
    async outcomes(objectIds: string[]): Promise<Settled> {
      const { ends, missing, trouble } = await outcomes(objectIds, { patience: DEADLINE });
      if (missing.size > 0) return { unknown: trouble === undefined ? UNDECIDED : messageOf(trouble) };
      return { errors: new Map([...ends].flatMap(([id, error]) => (error === null ? [] : [[id, error]]))) };
    },
  };
}

export type Effects = ReturnType<typeof createEffects>;
