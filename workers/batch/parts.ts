import type { Connection } from '../../src/store/database.ts';
import { cutEnvelopes, dropCutEnvelopes, releaseEnvelopes } from '../../src/store/ledger.ts';
import { type Limits, sendPipelined } from '../../src/store/transactions.ts';
import type { Poison } from './apply.ts';
import { type Claimed, type Delivery, keyOf, type Opened } from './open.ts';
import type { Origin, WorkItem } from './work-item.ts';

/**
 * How much of a batch one transaction applies. The other objects stay in the lane. The objects of one workspace in one
 * lane keep their order; workspaces are independent of each other.
 *
 * Each object takes effect exactly once. The transaction of a part holds the claim of the envelope while it writes the
 * row with the remaining objects, and releases the claim at its end. The next part reads that row after it has claimed
 * the envelope.
 */
export interface Part {
  /** Milliseconds after which no further round starts. */
  milliseconds: number;
  /** Maximum number of objects of each workspace; all by default. */
  shares?: ReadonlyMap<string, number>;
  /** Number of objects in the first round; all by default. */
  size?: number;
  /** Timeouts of its statements; LIMITS of run-batch.ts by default. */
  limits?: Limits;
  /** Whether each object gets a savepoint, so that one that Postgres refuses becomes a dead letter. */
  hasSavepoints?: boolean;
  /**
   * Called with the objects of the part before they are applied.
   *
   * @returns reasons, by id, of objects that become dead letters
   */
  begin?(items: readonly WorkItem[]): Promise<Poison>;
}

/** Milliseconds of a part. A part, the round that runs at its end and another part take less than 1 s together. */
export const PART_MS = 250;

/** A part that ends with its last object. */
export const WHOLE: Part = { milliseconds: Number.POSITIVE_INFINITY };

/** Removes objects that earlier parts have applied. */
export function withoutDone(opened: Opened, left: Claimed['left']): Opened {
  if (left.size === 0) return opened;
  return filtered(opened, ({ envelope, index }) => left.get(envelope)?.has(index) ?? true)[0];
}

type Rest = Pick<Opened, 'items' | 'deadLetters'>;

/**
 * Separates the objects that a part applies from the objects that stay in the lane. An object stays if the turn of its
 * workspace is later or if it exceeds the workspace's share.
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

/** @param isKept called in the order of the objects */
function filtered(
  { items, deadLetters, replayed }: Opened,
  isKept: (origin: Origin, workspaceId: string) => boolean,
): [kept: Opened, rest: Rest] {
  const kept: Opened = { items: [], deadLetters: [], replayed };
  const rest: Rest = { items: [], deadLetters: [] };
  let next = 0;
  for (let index = 0; index <= items.length; index++) {
    for (; deadLetters[next]?.index === index; next++) {
      const one = deadLetters[next]!;
      if (isKept(one.origin, one.workspaceId)) kept.deadLetters.push({ ...one, index: kept.items.length });
      else rest.deadLetters.push(one);
    }
    const item = items[index];
    if (item) (isKept(item, item.workspaceId) ? kept : rest).items.push(item);
  }
  return [kept, rest];
}

/** Number of remaining objects of an envelope, by workspace. */
export type LeftOfEnvelope = ReadonlyMap<string, number>;

/** Objects that a part leaves in the lane. */
interface LeftOver {
  /** Places of the remaining objects, by envelope id. */
  indexes: Map<string, number[]>;
  /** Number of remaining objects by workspace, by envelope id. */
  counts: Map<string, Map<string, number>>;
}

/** @param rest objects and dead letters that a part has not reached */
export function leftOf(rest: readonly Rest[]): LeftOver {
  const left: LeftOver = { indexes: new Map(), counts: new Map() };
  const add = ({ envelope, index }: Origin, workspaceId: string) => {
    const indexes = left.indexes.get(envelope);
    if (indexes) indexes.push(index);
    else left.indexes.set(envelope, [index]);
    const counts = left.counts.get(envelope) ?? new Map<string, number>();
    left.counts.set(envelope, counts.set(workspaceId, (counts.get(workspaceId) ?? 0) + 1));
  };
  for (const { items, deadLetters } of rest) {
    for (const item of items) add(item, item.workspaceId);
    for (const { origin, workspaceId } of deadLetters) add(origin, workspaceId);
  }
  return left;
}

/** Ends a part: releases the envelopes with remaining objects and records these objects. */
export async function endPart(
  tx: Connection,
  { mine, left: before }: Claimed,
  { indexes }: LeftOver,
): Promise<void> {
  const isPartDone = ({ id, envelope }: Delivery) =>
    indexes.has(id) && indexes.get(id)!.length < (envelope?.objects?.length ?? 0);
  const finished = mine.filter(({ id }) => before.has(id) && !indexes.has(id)).map(keyOf);
  const released = mine.filter(({ id }) => indexes.has(id)).map(keyOf);
  const cut = mine
    .filter(isPartDone)
    .map((delivery) => ({ ...keyOf(delivery), left: indexes.get(delivery.id)!.sort((a, b) => a - b) }));
  await sendPipelined(tx, [
    () => finished.length > 0 && dropCutEnvelopes(tx, finished),
    () => released.length > 0 && releaseEnvelopes(tx, released),
    () => cut.length > 0 && cutEnvelopes(tx, cut),
  ]);
}

/** Result of a batch, or of an attempt at one. */
export type BatchResult = {
  /** Trace and span ids for the log; absent without tracing. */
  ids?: object;
} & (
  | {
      kind: 'applied';
      /** Number of objects that took effect. */
      objects: number;
      /** Ids of the new dead letters. */
      deadLetters: string[];
      /** Whether the batch contained merges or deletes. */
      leavesTombstones: boolean;
      seconds: number;
      used: Usage;
      /** Remaining objects, by envelope id; absent if all envelopes are finished. */
      left?: ReadonlyMap<string, LeftOfEnvelope>;
    }
  /** Every envelope had been applied before. */
  | { kind: 'skipped' }
);

/** Resources of this process and of Postgres that a batch has used. */
export interface Usage {
  /** Number of objects that were applied or became dead letters, by workspace. */
  objects: Map<string, number>;
  /** Bytes of stored attributes that were loaded, by workspace. */
  loaded: Map<string, number>;
  /** Whether the batch ended before its last object. */
  isCut: boolean;
  /** Number of objects that the next round would have had. */
  nextRound: number;
}
