import type { Connection } from '../../src/store/database.ts';
import { cutEnvelopes, dropCutEnvelopes, releaseEnvelopes } from '../../src/store/ledger.ts';
import { sendTogether } from '../../src/store/transactions.ts';
import { type Claimed, type Delivery, keyOf, type Opened, type OpenedItem } from './open.ts';
import type { Origin, WorkItem } from './work-item.ts';

/**
 * Time slices for the lanes. A batch that takes long is cut into parts, each a transaction: what is left of it has its
 * turn again behind those of other workspaces. What one workspace has in one lane keeps its order, whoever goes first,
 * and workspaces have no order among each other.
 *
 * Effects are exact: the row that says what is left of an envelope is written in the transaction of the part, by who
 * holds the envelope's claim. That claim is given up with the part, and the row is read behind the next one.
 */
export interface Part {
  /** Milliseconds after which no further round begins. */
  milliseconds: number;
  /**
   * Workspaces whose time was over before, in any of their lanes: they go behind the others, and have a round at least.
   * First come, first served.
   */
  late: ReadonlySet<string>;
  /** Whether they are left out where there are others, who then need not wait for that round to be committed. */
  isForOthers: boolean;
  /** Objects that a first round of theirs looks at: as many as the last one could do. Absent: few. */
  size?: number;
  /** Between two steps: undefined, or resolves when those who overtake are done. */
  giveWay?(): Promise<void> | undefined;
}

/** A part, the round that runs at its end and another part are less than a second together. */
export const PART_MS = 250;

/** A part that ends with its last object. */
export const WHOLE: Part = { milliseconds: Number.POSITIVE_INFINITY, late: new Set(), isForOthers: false };

/** Leaves out what earlier parts have done. */
export function withoutDone(opened: Opened, left: Claimed['left']): Opened {
  if (left.size === 0) return opened;
  const isLeft = ({ envelope, place }: Origin) => left.get(envelope)?.has(place) ?? true;
  const items = opened.items.filter(isLeft);
  const deadLetters = opened.deadLetters
    .filter(({ origin }) => isLeft(origin))
    .map((one) => ({
      ...one,
      place: opened.items.slice(0, one.place).filter(isLeft).length,
    }));
  return { ...opened, items, deadLetters };
}

/**
 * Puts those whose turn was over behind the others. Where a delete decides what becomes of dead letters all keep their
 * places.
 */
export function inTurns({ items, deadLetters, replayed }: Opened, { late }: Part): OpenedItem[][] {
  if (late.size === 0 || deadLetters.length > 0 || replayed.size > 0) return [items];
  const places = new Map([...late].map((workspace, place) => [workspace, place]));
  const placeOf = (item: WorkItem) => places.get(item.workspaceId) ?? -1;
  const sorted = [...items]
    .sort((one, other) => placeOf(one) - placeOf(other) || one.ordinal - other.ordinal)
    .map((item, ordinal) => ({ ...item, ordinal }));
  const first = sorted.findIndex((item) => placeOf(item) >= 0);
  return first <= 0 ? [sorted] : [sorted.slice(0, first), sorted.slice(first)];
}

/** What a part has not come to. */
export interface LeftOver {
  origins: Origin[];
  workspaces: Set<string>;
  /** Those of them whose time was over. */
  over: Set<string>;
  /** Objects that their next round would have looked at. */
  size: number;
}

/**
 * What is left of a part at its end.
 *
 * @param rest objects and dead letters that it has not come to
 */
export function leftOf(
  rest: readonly Pick<Opened, 'items' | 'deadLetters'>[],
  { over, size }: Pick<LeftOver, 'over' | 'size'>,
): LeftOver {
  const origins: Origin[] = [];
  const workspaces = new Set<string>();
  for (const { items, deadLetters } of rest) {
    for (const { envelope, place, workspaceId } of items) {
      origins.push({ envelope, place });
      workspaces.add(workspaceId);
    }
    for (const { origin } of deadLetters) origins.push(origin);
  }
  return { origins, workspaces, over, size };
}

/**
 * Ends a part: gives the envelopes back of which something is left, and notes what.
 *
 * @returns ids of these envelopes
 */
export async function endPart(
  tx: Connection,
  { mine, left: before }: Claimed,
  { origins }: LeftOver,
): Promise<Set<string>> {
  const places = new Map<string, number[]>();
  for (const { envelope, place } of origins) {
    const known = places.get(envelope);
    if (known) known.push(place);
    else places.set(envelope, [place]);
  }
  const isPartDone = ({ id, envelope }: Delivery) =>
    places.has(id) && places.get(id)!.length < (envelope?.objects?.length ?? 0);
  const finished = mine.filter(({ id }) => before.has(id) && !places.has(id)).map(keyOf);
  const released = mine.filter(({ id }) => places.has(id)).map(keyOf);
  const cut = mine
    .filter(isPartDone)
    .map((delivery) => ({ ...keyOf(delivery), left: places.get(delivery.id)!.sort((a, b) => a - b) }));
  await sendTogether(tx, [
    () => finished.length > 0 && dropCutEnvelopes(tx, finished),
    () => released.length > 0 && releaseEnvelopes(tx, released),
    () => cut.length > 0 && cutEnvelopes(tx, cut),
  ]);
  return new Set(places.keys());
}

/** How a batch, or an attempt at one, ended. */
export type BatchResult = {
  /** Of its span, for the log; absent: nothing is traced. */
  ids?: object;
} /**
 * `objects`: those that took effect; `deadLetters`: ids of those that cannot; `leavesTombstones`: whether profiles were
 * merged, or were to be deleted; `left`: what the next part is about, if this one was not the last.
 */ & (
  | {
      kind: 'applied';
      objects: number;
      deadLetters: string[];
      leavesTombstones: boolean;
      seconds: number;
      left?: Left;
    }
  /** Every envelope had been applied before. */
  | { kind: 'skipped' }
);

export interface Left {
  /** Ids. */
  envelopes: ReadonlySet<string>;
  /** Of which something is left. */
  workspaces: ReadonlySet<string>;
  /** Those of them whose time was over. */
  over: ReadonlySet<string>;
  /** Objects that their next round would have looked at. */
  size: number;
}
