import type { Connection } from '../../src/store/database.ts';
import { cutEnvelopes, dropCutEnvelopes, releaseEnvelopes } from '../../src/store/ledger.ts';
import { type Limits, sendTogether } from '../../src/store/transactions.ts';
import { type Claimed, type Delivery, keyOf, type Opened } from './open.ts';
import type { Origin } from './work-item.ts';

/**
 * How much of a batch one transaction applies. The rest stays in the lane. What one workspace has in one lane keeps its
 * order, whoever goes first, and workspaces have no order among each other.
 *
 * Effects are exact: the row that says what is left of an envelope is written in the transaction of the part, by who
 * holds the envelope's claim. That claim is given up with the part, and the row is read behind the next one.
 */
export interface Part {
  /** Milliseconds after which no further round begins. */
  milliseconds: number;
  /** Most objects of each workspace; absent: all. */
  shares?: ReadonlyMap<string, number>;
  /** Objects that the first round looks at; absent: all. */
  size?: number;
  /** Of its statements; absent: LIMITS of run-batch.ts. */
  limits?: Limits;
}

/** A part, the round that runs at its end and another part are less than a second together. */
export const PART_MS = 250;

/** A part that ends with its last object. */
export const WHOLE: Part = { milliseconds: Number.POSITIVE_INFINITY };

/** Leaves out what earlier parts have done. */
export function withoutDone(opened: Opened, left: Claimed['left']): Opened {
  if (left.size === 0) return opened;
  return filtered(opened, ({ envelope, place }) => left.get(envelope)?.has(place) ?? true)[0];
}

type Rest = Pick<Opened, 'items' | 'deadLetters'>;

/**
 * Separates the objects that a part applies from those that stay in the lane: objects of workspaces whose turn is later,
 * and of each workspace those beyond its share.
 */
export function chosenOf(
  opened: Opened,
  deliveries: readonly Delivery[],
  { shares }: Part,
): [chosen: Opened, rest: Rest] {
  const only = new Map(deliveries.flatMap(({ id, only: its }) => (its ? [[id, its] as const] : [])));
  if (only.size === 0 && !shares) return [opened, { items: [], deadLetters: [] }];
  const counts = new Map<string, number>();
  return filtered(opened, ({ envelope }, workspaceId) => {
    if (only.get(envelope)?.has(workspaceId) === false) return false;
    const count = (counts.get(workspaceId) ?? 0) + 1;
    if (count > (shares?.get(workspaceId) ?? Number.POSITIVE_INFINITY)) return false;
    counts.set(workspaceId, count);
    return true;
  });
}

/** @param isKept is asked in the order of the objects */
function filtered(
  { items, deadLetters, replayed }: Opened,
  isKept: (origin: Origin, workspaceId: string) => boolean,
): [kept: Opened, rest: Rest] {
  const kept: Opened = { items: [], deadLetters: [], replayed };
  const rest: Rest = { items: [], deadLetters: [] };
  let next = 0;
  for (let place = 0; place <= items.length; place++) {
    for (; deadLetters[next]?.place === place; next++) {
      const one = deadLetters[next]!;
      if (isKept(one.origin, one.workspaceId)) kept.deadLetters.push({ ...one, place: kept.items.length });
      else rest.deadLetters.push(one);
    }
    const item = items[place];
    if (item) (isKept(item, item.workspaceId) ? kept : rest).items.push(item);
  }
  return [kept, rest];
}

/** Numbers of objects that are left of an envelope, by workspace. */
export type LeftOfEnvelope = ReadonlyMap<string, number>;

/** What a part leaves in the lane. */
export interface LeftOver {
  /** Places of objects, by envelope. */
  places: Map<string, number[]>;
  /** By envelope. */
  counts: Map<string, Map<string, number>>;
}

/** @param rest objects and dead letters that a part has not come to */
export function leftOf(rest: readonly Rest[]): LeftOver {
  const left: LeftOver = { places: new Map(), counts: new Map() };
  const add = ({ envelope, place }: Origin, workspaceId: string) => {
    const places = left.places.get(envelope);
    if (places) places.push(place);
    else left.places.set(envelope, [place]);
    const counts = left.counts.get(envelope) ?? new Map<string, number>();
    left.counts.set(envelope, counts.set(workspaceId, (counts.get(workspaceId) ?? 0) + 1));
  };
  for (const { items, deadLetters } of rest) {
    for (const item of items) add(item, item.workspaceId);
    for (const { origin, workspaceId } of deadLetters) add(origin, workspaceId);
  }
  return left;
}

/** Ends a part: gives the envelopes back of which something is left, and notes what. */
export async function endPart(
  tx: Connection,
  { mine, left: before }: Claimed,
  { places }: LeftOver,
): Promise<void> {
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
}

/** How a batch, or an attempt at one, ended. */
export type BatchResult = {
  /** Of its span, for the log; absent: nothing is traced. */
  ids?: object;
} & (
  | {
      kind: 'applied';
      /** Number of objects that took effect. */
      objects: number;
      /** Ids of those that cannot. */
      deadLetters: string[];
      /** Whether profiles were merged, or were to be deleted. */
      leavesTombstones: boolean;
      seconds: number;
      used: Usage;
      /** What is left of envelopes, by their ids; absent: nothing. */
      left?: ReadonlyMap<string, LeftOfEnvelope>;
    }
  /** Every envelope had been applied before. */
  | { kind: 'skipped' }
);

/** What a batch has used of this process and of Postgres. */
export interface Usage {
  /** Objects that are done with, by workspace. */
  objects: Map<string, number>;
  /** Bytes of stored attributes that were loaded, by workspace. */
  loaded: Map<string, number>;
  /** Whether the batch ended because its time was over. */
  isCut: boolean;
  /** Objects that the next round would have looked at. */
  nextRound: number;
}
