import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { backOff, rest } from '../../src/platform/poll.ts';
import type { Connection, Pool } from '../../src/store/database.ts';
import { forEachWorkspace, isDistributed } from '../../src/store/distributed.ts';
import { eraseActivity, eraseHistories, eraseSlice } from '../../src/store/erasures.ts';
import { mergeEventSummaries } from '../../src/store/events.ts';
import { isPassed, readHorizon } from '../../src/store/horizon.ts';
import { removeNames } from '../../src/store/left-names.ts';
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
import { inTransaction, sendPipelined } from '../../src/store/transactions.ts';

/** Maximum raw rows that one transaction erases. It takes about 50 ms and holds its locks as briefly. */
const RAW_SLICE = 5000;

/**
 * Maximum rows of each other table that one transaction moves or erases. Lanes that add to the same sums wait
 * for it.
 */
const SLICE = 2000;

/** Cleans up after merged and deleted profiles while the lanes continue. */
interface TombstoneCleanup extends Service {
  /** Must be called when profiles were merged or deleted. */
  wake(): void;
}

/** Milliseconds between two searches for tombstones that a dead worker left. */
const SWEEP_INTERVAL_MS = 5000;

/** Number of profiles in a page. */
const CHUNK = 200;

/** Milliseconds between two checks of running transactions: the first and the longest pause. */
const PAUSES = { first: 1, longest: 100 };

/** Pauses in a distributed database, where each check takes a connection to each node. */
const PAUSES_DISTRIBUTED = { first: 100, longest: 1000 };

/** Minimum milliseconds between two pages in a distributed database, unless there is more than one page. */
const PAGE_DISTRIBUTED_MS = 500;

/**
 * Cleans up tombstones: does the remaining work for merged and deleted profiles while the lanes continue.
 *
 * With several lanes, a lane that has found a profile may write its events and their sums after another lane
 * has merged or deleted it. Events do not lock their profile, because a lock costs as much as the event. So a
 * removed profile is checked once more after all transactions that were running at its removal have ended.
 * Every transaction that had looked it up has written by then, and later ones cannot find it.
 */
export function startTombstoneCleanup(
  pool: Pool,
  log: Log,
  onFailuresErased: () => void = () => {},
): TombstoneCleanup {
  const stopping = new AbortController();
  let awake = true;
  /** The last profile that was checked; undefined if the next page begins at the start of the list. */
  let cursor: ProfileKey | undefined;
  /** Whether any work was done since the start of the list. */
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
   * Processes one page of the list. Pages take turns, so that a small profile does not wait for a user with a
   * million rows.
   *
   * @returns false if this worker cannot do any of the remaining work
   */
  async function settleSome(): Promise<boolean> {
    const keys = await selectTombstones(pool, CHUNK, cursor);
    const isLast = keys.length < CHUNK;
    const settled = keys.length > 0 && (await settlePage(keys));
    const erased = await cleanUpHistories(pool);
    const goesOn = progress || settled || erased;
    cursor = isLast ? undefined : keys.at(-1);
    progress = !isLast && goesOn;
    return !isLast || goesOn;
  }

  async function settlePage(keys: ProfileKey[]): Promise<boolean> {
    await horizonPassed();
    if (stopping.signal.aborted) return false;
    const started = performance.now();
    const settled = await cleanUpTombstones(pool, keys, onFailuresErased);
    // Leave half of the time to the lanes: a user with a million events is erased in slices.
    const taken = performance.now() - started;
    const isOnNodes = await isDistributed(pool);
    await rest(
      isOnNodes && keys.length < CHUNK ? Math.max(taken, PAGE_DISTRIBUTED_MS) : taken,
      stopping.signal,
    );
    return settled;
  }

  async function horizonPassed(): Promise<void> {
    const horizon = await readHorizon(pool);
    const { first, longest } = (await isDistributed(pool)) ? PAUSES_DISTRIBUTED : PAUSES;
    const pause = backOff(first, longest);
    while (!stopping.signal.aborted && !(await isPassed(pool, horizon))) await rest(pause(), stopping.signal);
  }

  /** Waits until the next sweep or until `wake` is called. */
  async function doze(): Promise<void> {
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, SWEEP_INTERVAL_MS);
      wakeUp = () => {
        clearTimeout(timer);
        resolve();
      };
      // The process may have been asked to stop before `wakeUp` was set.
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
 * Does one step of the cleanup: moves a slice of the data of merged profiles to their targets, and erases a
 * slice of the data of deleted ones. Each profile has its share of the slice, so that small profiles finish
 * at once. Any number of workers may do it concurrently and may stop at any point.
 *
 * @returns false if no work was done because other workers have locked all of the profiles
 */
export async function cleanUpTombstones(
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
  // First and in its own transaction, because a worker that has locked tombstones must not wait for others.
  const spread = await spreadDeletes(pool, keys, Math.ceil(SLICE / keys.length));
  // Use separate transactions, because lanes lock dead letters and sums in a different order.
  const failures = await step(pool, keys, { bring: mergeDeadLetters, erase: eraseDeadLetters });
  if (failures > 0) onFailuresErased();
  const others = await step(pool, keys, { bring: mergeBelongings, erase });
  return spread + failures + others > 0;
}

/** @returns false if no history of an address is left that this worker can erase */
export function cleanUpHistories(pool: Pool): Promise<boolean> {
  return eraseHistories(pool, SLICE);
}

/**
 * Work in one transaction for profiles with the same fate; returns the number of rows. `share` is the maximum
 * per profile.
 */
type Settling = (tx: Connection, tombstones: Tombstone[], share: number) => Promise<number>;

function step(
  pool: Pool,
  keys: ProfileKey[],
  { bring: merge, erase }: { bring: Settling; erase: Settling },
): Promise<number> {
  return inTransaction(pool, async (tx) => {
    const tombstones = await lockTombstones(tx, keys);
    const merged = tombstones.filter(({ fate }) => fate === 'merged');
    const deleted = tombstones.filter(({ fate }) => fate === 'deleted');
    const share = Math.ceil(SLICE / Math.max(1, tombstones.length));
    const brought = merged.length > 0 ? await merge(tx, merged, share) : 0;
    const erased = deleted.length > 0 ? await erase(tx, deleted, share) : 0;
    return brought + erased;
  });
}

async function mergeDeadLetters(tx: Connection, merged: Tombstone[], share: number): Promise<number> {
  const pairs = await findKept(tx, merged);
  if (pairs.length === 0) return 0;
  return total(
    await sendPipelined(tx, [
      () => bringFailures(tx, pairs, { which: 'owned', rowsOfEach: share }),
      () => bringFailures(tx, pairs, { which: 'named', rowsOfEach: share }),
      () => removeNames(tx, merged, share),
    ]),
  );
}

async function eraseDeadLetters(tx: Connection, deleted: Tombstone[], share: number): Promise<number> {
  return total(
    await sendPipelined(tx, [() => eraseFailures(tx, deleted, share), () => removeNames(tx, deleted, share)]),
  );
}

async function mergeBelongings(tx: Connection, merged: Tombstone[], share: number): Promise<number> {
  const pairs = await findKept(tx, merged);
  return total(
    await sendPipelined(tx, [
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
    await sendPipelined(tx, [
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
