import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { forEachWorkspace, isDistributed } from '../../src/store/distributed.ts';
import { eraseActivity, eraseHistories, eraseSlice } from '../../src/store/erasures.ts';
import { mergeEventSummaries } from '../../src/store/events.ts';
import { isPassed, readHorizon } from '../../src/store/horizon.ts';
import { strikeOffNames } from '../../src/store/left-names.ts';
import type { ProfileKey } from '../../src/store/merges.ts';
import { bringFailures, eraseFailures } from '../../src/store/named-failures.ts';
import { movePushTokens } from '../../src/store/profile-attributes.ts';
import { mergePurchaseSummaries } from '../../src/store/purchases.ts';
import {
  dropSettled,
  findKept,
  lockTombstones,
  selectTombstones,
  spreadDeletes,
  type Tombstone,
} from '../../src/store/tombstones.ts';
import { inTransaction, sendTogether } from '../../src/store/transactions.ts';

/** Raw rows erased in one transaction: about 50 ms, and as short a lock. */
const RAW_SLICE = 5000;

/** Rows of each other table that one transaction moves or erases: lanes that add to the same sums wait for it. */
const SLICE = 2000;

/** Settles tombstones beside the lanes. */
export interface Settler extends Service {
  /** Says that profiles were merged or deleted. */
  wake(): void;
}

/** Between two looks for what a worker that died has left. */
const SWEEP_INTERVAL_MS = 5000;

/** Profiles taken at a time. */
const CHUNK = 200;

/** Milliseconds between two looks at what is under way: the first pause, and the longest. */
const PAUSES = { first: 1, longest: 100 };

/** Where it is the nodes that know, since each look takes a connection to each of them. */
const PAUSES_APART = { first: 100, longest: 1000 };

/** Milliseconds between two pages there, unless there is more than one. */
const PAGE_APART_MS = 500;

/**
 * Settles tombstones: does what is left to do for profiles that are gone, beside the lanes.
 *
 * With several lanes, one that has found a profile may write its events and their sums after another lane has merged or
 * deleted it. Events lock no profile, since a lock costs as much as the event. So a removed profile is looked at once
 * more when every transaction that was under way at its removal has ended. Whoever looked it up before has written by
 * then, and nobody can look it up since.
 */
export function startSettling(pool: Pool, log: Log, onFailuresErased: () => void = () => {}): Settler {
  const stopping = new AbortController();
  let awake = true;
  /** The last profile that was looked at; absent: the next look begins at the start of the list. */
  let cursor: ProfileKey | undefined;
  /** Whether anything could be done since the start of the list. */
  let progress = false;
  let wakeUp = () => {};
  const running = sweep();

  async function sweep(): Promise<void> {
    while (!stopping.signal.aborted) {
      awake = false;
      try {
        while (!stopping.signal.aborted && (await settleSome())) {}
      } catch (error) {
        log.warn({ err: error }, 'cleanup of merged or deleted profiles failed; will retry');
      }
      if (!awake) await doze();
    }
  }

  /**
   * One page of the list, in turn: nobody who is done soon waits for a user with a million rows.
   *
   * @returns false when nothing is left that this worker can do
   */
  async function settleSome(): Promise<boolean> {
    const keys = await selectTombstones(pool, CHUNK, cursor);
    const isLast = keys.length < CHUNK;
    const settled = keys.length > 0 && (await settlePage(keys));
    const erased = await settleHistories(pool);
    const goesOn = progress || settled || erased;
    cursor = isLast ? undefined : keys.at(-1);
    progress = !isLast && goesOn;
    return !isLast || goesOn;
  }

  async function settlePage(keys: ProfileKey[]): Promise<boolean> {
    await horizonPassed();
    if (stopping.signal.aborted) return false;
    const started = performance.now();
    const settled = await settleTombstones(pool, keys, onFailuresErased);
    // Half of the time belongs to the lanes: a user with a million events is erased in slices.
    const taken = performance.now() - started;
    const isApart = await isDistributed(pool);
    await rest(isApart && keys.length < CHUNK ? Math.max(taken, PAGE_APART_MS) : taken, stopping.signal);
    return settled;
  }

  async function horizonPassed(): Promise<void> {
    const horizon = await readHorizon(pool);
    const { first, longest } = (await isDistributed(pool)) ? PAUSES_APART : PAUSES;
    const pause = backOff(first, longest);
    while (!stopping.signal.aborted && !(await isPassed(pool, horizon))) await rest(pause(), stopping.signal);
  }

  /** Until the next sweep, or until it is woken. */
  async function doze(): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, SWEEP_INTERVAL_MS);
      wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
      // Told to stop a moment ago, when there was nobody to wake.
      if (stopping.signal.aborted) wakeUp();
    });
  }

  return {
    name: 'tombstones',
    wake() {
      awake = true;
      wakeUp();
    },
    async stop() {
      stopping.abort();
      wakeUp();
      await running;
    },
  };
}

/**
 * One step of settling tombstones: a slice of what the merged ones left behind goes where they went, and a slice of what
 * the deleted ones did is erased. Each profile has its share of the slice, so that small ones are done at once. Any
 * number of workers may do it at once, and any of them may end in the middle.
 *
 * @returns false when nothing could be done: other workers have all of them in hand
 */
export async function settleTombstones(
  pool: Pool,
  given: ProfileKey[],
  onFailuresErased: () => void = () => {},
): Promise<boolean> {
  const steps = await forEachWorkspace(
    pool,
    { given, workspaceOf: ({ workspaceId }) => workspaceId },
    async (keys) => [await settleKeys(pool, [...keys], onFailuresErased)],
  );
  return steps.some(Boolean);
}

async function settleKeys(pool: Pool, keys: ProfileKey[], onFailuresErased: () => void): Promise<boolean> {
  // Alone, and first: whoever has tombstones in hand waits for no other ones.
  const spread = await spreadDeletes(pool, keys, Math.ceil(SLICE / keys.length));
  // Lanes lock dead letters and sums in another order than one transaction here would.
  const failures = await step(pool, keys, { bring: bringDeadLetters, erase: eraseDeadLetters });
  if (failures > 0) onFailuresErased();
  const others = await step(pool, keys, { bring: bringAfter, erase });
  return spread + failures + others > 0;
}

/** @returns false when no history of an address is left to erase that nobody else has in hand */
export function settleHistories(pool: Pool): Promise<boolean> {
  return eraseHistories(pool, SLICE);
}

/** What is done in one transaction for profiles of one fate; how many rows it were. `share`: of each profile, at most. */
type Settling = (tx: Connection, tombstones: Tombstone[], share: number) => Promise<number>;

function step(
  pool: Pool,
  keys: ProfileKey[],
  { bring, erase }: { bring: Settling; erase: Settling },
): Promise<number> {
  return inTransaction(pool, async (tx) => {
    const tombstones = await lockTombstones(tx, keys);
    const merged = tombstones.filter(({ fate }) => fate === 'merged');
    const deleted = tombstones.filter(({ fate }) => fate === 'deleted');
    const share = Math.ceil(SLICE / Math.max(1, tombstones.length));
    const brought = merged.length > 0 ? await bring(tx, merged, share) : 0;
    const erased = deleted.length > 0 ? await erase(tx, deleted, share) : 0;
    return brought + erased;
  });
}

async function bringDeadLetters(tx: Connection, merged: Tombstone[], share: number): Promise<number> {
  const pairs = await findKept(tx, merged);
  if (pairs.length === 0) return 0;
  return total(
    await sendTogether(tx, [
      () => bringFailures(tx, pairs, { which: 'owned', rowsOfEach: share }),
      () => bringFailures(tx, pairs, { which: 'named', rowsOfEach: share }),
      () => strikeOffNames(tx, merged, share),
    ]),
  );
}

async function eraseDeadLetters(tx: Connection, deleted: Tombstone[], share: number): Promise<number> {
  return total(
    await sendTogether(tx, [
      () => eraseFailures(tx, deleted, share),
      () => strikeOffNames(tx, deleted, share),
    ]),
  );
}

async function bringAfter(tx: Connection, merged: Tombstone[], share: number): Promise<number> {
  const pairs = await findKept(tx, merged);
  return total(
    await sendTogether(tx, [
      () => (pairs.length > 0 ? mergeEventSummaries(tx, pairs, share) : 0),
      () => (pairs.length > 0 ? mergePurchaseSummaries(tx, pairs, share) : 0),
      () => (pairs.length > 0 ? movePushTokens(tx, pairs, share) : 0),
      () => eraseSlice(tx, 'names', { keys: merged, rowsOfEach: share }),
      () => dropSettled(tx, merged, 'merged'),
    ]),
  );
}

async function erase(tx: Connection, deleted: Tombstone[], share: number): Promise<number> {
  return total(
    await sendTogether(tx, [
      () => eraseActivity(tx, 'events', { keys: deleted, limit: RAW_SLICE }),
      () => eraseActivity(tx, 'purchases', { keys: deleted, limit: RAW_SLICE }),
      () => eraseSlice(tx, 'belongings', { keys: deleted, rowsOfEach: share }),
      () => eraseSlice(tx, 'names', { keys: deleted, rowsOfEach: share }),
      () => dropSettled(tx, deleted, 'deleted'),
    ]),
  );
}

function total(counts: number[]): number {
  return counts.reduce((sum, count) => sum + count, 0);
}
