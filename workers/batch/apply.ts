import type { Connection } from '../../src/store/database.ts';
import type { StreamEntries } from '../../src/store/stream-entries.ts';
import type { RefusedObject } from './failures.ts';
import { fold } from './fold/fold.ts';
import { load } from './load.ts';
import { joined, toStreamEntries, type Written } from './stream-entries.ts';
import type { WorkItem } from './work-item.ts';
import { writeChanges } from './write.ts';

/**
 * Objects of the round after one that ended at once: what is loaded for more would be loaded again, should the next
 * end as soon.
 */
export const SMALL_ROUND = 2;

/**
 * Milliseconds that a round may be folded for at least, and how many times what its loading took: what it has loaded is
 * loaded again if it is cut.
 */
const LEAST_FOLD_MS = 300;
const FOLD_TIMES = 3;

export interface Applied {
  /** Objects that are done with, from the first: they took effect or are refused. */
  count: number;
  /** Those that could not be applied; their dead letters are written. */
  refused: RefusedObject[];
  /** Objects that the next round would look at. */
  size: number;
  /** Whether profiles were merged, or were to be deleted: something may be left to do beside the lanes. */
  leavesTombstones: boolean;
  /** Objects whose user goes by a name of another lane. */
  namedElsewhere: WorkItem[];
  /** For the log of streams. */
  entries: StreamEntries[];
}

export function nothingApplied(): Applied {
  return {
    count: 0,
    size: SMALL_ROUND,
    refused: [],
    leavesTombstones: false,
    namedElsewhere: [],
    entries: [],
  };
}

/** Adds what came next. */
export function addApplied(
  sum: Applied,
  { count, size, refused, leavesTombstones, namedElsewhere, entries }: Applied,
): void {
  sum.count += count;
  sum.size = size;
  sum.refused.push(...refused);
  sum.leavesTombstones ||= leavesTombstones;
  sum.namedElsewhere.push(...namedElsewhere);
  sum.entries = joined(sum.entries, entries);
}

/** Objects that are not to be applied, by their ids, and why: they become dead letters at their places. */
export type Poison = ReadonlyMap<string, string>;

/** How objects are applied. */
export interface Terms {
  /** The store's clock at the start of the batch, ISO 8601 with microseconds. */
  now: string;
  /** Of `performance.now()`: no round begins after it, but for the first, and one that goes on is ended. */
  until: number;
  /** Objects that the first round looks at; absent: all. */
  size?: number;
  poison: Poison;
  /** Workspaces whose changes go into the log of streams; absent: none. */
  streamed?: ReadonlySet<string>;
  /** Between two steps: see `Part` in parts.ts. */
  giveWay?(): Promise<void> | undefined;
}

/** Entries of the log of streams: made while the store works, unless it has to say first which states have changed. */
async function logged(written: Written, { streamed }: Terms): Promise<StreamEntries[]> {
  if (!streamed || streamed.size === 0) return [];
  const states = written.changes.states.changes.length > 0 ? await written.stored : [];
  return toStreamEntries({ ...written, states }, streamed);
}

/**
 * Applies accepted objects in their order, in rounds: load whom they name, fold in memory, write whole sets. A
 * round ends where an object needs a reload, and where it would be about more than
 * a round may be; most batches are one round.
 *
 * @throws whatever the store says; then the transaction is spoilt
 */
export async function applySome(tx: Connection, items: WorkItem[], terms: Terms): Promise<Applied> {
  const applied = nothingApplied();
  let size = Math.min(items.length, terms.size ?? items.length);
  while (applied.count < items.length && (applied.count === 0 || performance.now() < terms.until)) {
    const start = applied.count;
    const wanted = start === 0 && size === items.length ? items : items.slice(start, start + size);
    const began = performance.now();
    const { changes, round } = await load(tx, wanted, terms);
    await terms.giveWay?.();
    const loaded = performance.now();
    const least = loaded + Math.max(LEAST_FOLD_MS, FOLD_TIMES * (loaded - began));
    const { poison, until } = terms;
    const folded = await fold(round, changes, { poison, until: Math.max(until, least) });
    // A mistake of ours: the object becomes a dead letter, and its lane goes on.
    if (folded === 0) throw new TypeError('the object needs a reload after each load');
    await terms.giveWay?.();
    const sent = writeChanges(tx, changes, terms.now);
    const written = { ...sent, changes, round: round.slice(0, folded) };
    const [, entries] = await Promise.all([sent.stored, logged(written, terms)]);
    await terms.giveWay?.();
    applied.entries = joined(applied.entries, entries);
    applied.refused.push(...changes.refused);
    applied.namedElsewhere.push(...changes.namedElsewhere);
    applied.leavesTombstones ||= changes.identity.merges.length + changes.identity.deletes.length > 0;
    applied.count += folded;
    size = folded < wanted.length ? Math.max(SMALL_ROUND, folded * 2) : size * 4;
  }
  applied.size = size;
  return applied;
}
