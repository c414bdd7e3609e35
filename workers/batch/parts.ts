import { validate as isVersionedUuid } from 'uuid';
import type { EnvelopeRequest } from '../../src/jobs/envelope.ts';
import type { Connection } from '../../src/store/database.ts';
import {
  claimEnvelopes,
  cutEnvelopes,
  dropCutEnvelopes,
  type EnvelopeKey,
  readCutEnvelopes,
  releaseEnvelopes,
  SHARED,
} from '../../src/store/ledger.ts';
import { sendTogether } from '../../src/store/send-together.ts';
import { SMALL_ROUND } from './apply.ts';
import { tracesOf } from './by-workspace.ts';
import type { Delivery, Opened, OpenedItem } from './open.ts';
import { type Origin, scoped, type WorkItem } from './work-item.ts';

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

/** What one workspace has in one lane: its objects take effect in their order. Its time is counted over all lanes. */
export function turnOf({ lane, workspaceId }: Pick<WorkItem, 'lane' | 'workspaceId'>): string {
  return scoped(workspaceId, String(lane));
}

/** Envelopes that are claimed, and what earlier parts have left of them. */
export interface Claimed {
  mine: Delivery[];
  /** Places of objects, by the envelope's id; one that was never cut is missing. */
  left: ReadonlyMap<string, ReadonlySet<number>>;
  now: string;
  /** Workspaces that have a destination of streams. */
  streamed: ReadonlySet<string>;
}

/** Whose row of the ledger an envelope has: that of its one workspace, or everybody's. */
function keyOf({ id, envelope, share }: Delivery): EnvelopeKey {
  if (share) return { id, workspaceId: share.workspaceId };
  const requests: (EnvelopeRequest | undefined)[] = Array.isArray(envelope?.requests)
    ? envelope.requests
    : [];
  const workspaceId = requests[0]?.workspace_id;
  for (const request of requests)
    if (request?.workspace_id !== workspaceId) return { id, workspaceId: SHARED };
  return { id, workspaceId: isVersionedUuid(workspaceId) ? workspaceId! : SHARED };
}

/** Claims each envelope once, however often it is among those that were handed in. */
export async function claim(tx: Connection, given: Delivery[]): Promise<Claimed> {
  const deliveries = [...new Map(given.map((delivery) => [delivery.id, delivery])).values()];
  const envelopes = deliveries.map((delivery) => ({ ...keyOf(delivery), traces: tracesOf(delivery) }));
  // Nobody has looked at the envelopes yet: what is no id has no destination.
  const workspaces = [...new Set(deliveries.flatMap(workspacesOf))].filter((id) => isVersionedUuid(id));
  const [{ claimed, now, streamed }, cut] = await sendTogether(tx, [
    () => claimEnvelopes(tx, envelopes, workspaces),
    () => readCutEnvelopes(tx, envelopes),
  ]);
  return {
    mine: deliveries.filter(({ id }) => claimed.has(id)),
    left: new Map(cut.map(({ id, left }) => [id, new Set(left)])),
    now,
    streamed,
  };
}

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

export function nothingLeft(): LeftOver {
  return { origins: [], workspaces: new Set(), over: new Set(), size: SMALL_ROUND };
}

export function leave(left: LeftOver, { items, deadLetters }: Pick<Opened, 'items' | 'deadLetters'>): void {
  for (const item of items) {
    left.origins.push({ envelope: item.envelope, place: item.place });
    left.workspaces.add(item.workspaceId);
  }
  for (const { origin } of deadLetters) left.origins.push(origin);
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

/** What a lane has handed in at once, and waits for. */
export interface HandedIn {
  deliveries: Delivery[];
  done(): void;
}

/** Each envelope for itself; whoever handed in several hears of the last one. */
export function inPieces(held: HandedIn): HandedIn[] {
  const { deliveries, done } = held;
  if (deliveries.length === 1) return [held];
  let left = deliveries.length;
  const doneOne = () => {
    left--;
    if (left === 0) done();
  };
  return deliveries.map((delivery) => ({ deliveries: [delivery], done: doneOne }));
}

/** Those of which something is left, with that alone. */
export function remainingOf(batch: HandedIn[], left: ReadonlySet<string>): HandedIn[] {
  return batch.flatMap((one) => {
    const deliveries = one.deliveries.filter(({ id }) => left.has(id));
    return deliveries.length > 0 ? [{ ...one, deliveries }] : [];
  });
}

/** Tells those of which nothing is left. */
export function tellDone(batch: HandedIn[], left: ReadonlySet<string>): void {
  for (const { deliveries, done } of batch) if (!deliveries.some(({ id }) => left.has(id))) done();
}

export function lanesOf({ deliveries }: HandedIn): number[] {
  return deliveries.map(({ lane }) => lane);
}

/**
 * Puts pieces of those whose turn was over behind the others. Who is in such a piece as well waits with it: what comes
 * later of them may not overtake it.
 */
export function byTurns(
  pieces: HandedIn[],
  late: ReadonlySet<string>,
): [inFront: HandedIn[], behind: HandedIn[]] {
  const waiting = new Set<string>();
  const [inFront, behind]: [HandedIn[], HandedIn[]] = [[], []];
  for (const piece of pieces) {
    const turns = piece.deliveries.flatMap(turnsOf);
    const isLate = piece.deliveries.flatMap(workspacesOf).some((workspace) => late.has(workspace));
    if (!isLate && !turns.some((turn) => waiting.has(turn))) {
      inFront.push(piece);
      continue;
    }
    behind.push(piece);
    for (const turn of turns) waiting.add(turn);
  }
  return [inFront, behind];
}

/**
 * Takes what a transaction may hold, envelope by envelope. Of what one workspace has in one lane it is the beginning, since
 * that takes effect in its order. Those whose time was over go behind the others, and have one envelope at least, unless
 * something that is left comes before it.
 *
 * @param most objects, but for the first envelope
 */
export function takePieces(
  held: HandedIn[],
  { late, most }: { late: ReadonlySet<string>; most: number },
): { taken: HandedIn[]; left: HandedIn[] } {
  const [inFront, behind] = byTurns(held.flatMap(inPieces), late);
  let count = Math.min(1, inFront.length);
  for (let objects = objectsOf(inFront.slice(0, 1)); count < inFront.length; count++) {
    objects += objectsOf([inFront[count]!]);
    if (objects > most) break;
  }
  const left = inFront.slice(count);
  const waiting = new Set(left.flatMap(({ deliveries }) => deliveries.flatMap(turnsOf)));
  const [first] = behind;
  const mayGo = first && !first.deliveries.flatMap(turnsOf).some((turn) => waiting.has(turn));
  const ofLate = mayGo ? 1 : 0;
  return {
    taken: [...inFront.slice(0, count), ...behind.slice(0, ofLate)],
    left: [...left, ...behind.slice(ofLate)],
  };
}

/** Pieces of each lane, in their order. */
export function byLane(pieces: HandedIn[]): Map<number, HandedIn[]> {
  const lanes = new Map<number, HandedIn[]>();
  for (const piece of pieces)
    for (const lane of lanesOf(piece)) {
      const others = lanes.get(lane);
      if (others) others.push(piece);
      else lanes.set(lane, [piece]);
    }
  return lanes;
}

export function objectsOf(held: HandedIn[]): number {
  return countObjects(held.flatMap(({ deliveries }) => deliveries));
}

export function countObjects(deliveries: Delivery[]): number {
  let objects = 0;
  // Of whatever a lane held: an envelope of another release may have a shape of its own.
  for (const { envelope } of deliveries) objects += envelope?.objects?.length ?? 0;
  return objects;
}

/** Whose turns an envelope is about: see `turnOf`. */
export function turnsOf(delivery: Delivery): string[] {
  const { lane } = delivery;
  return workspacesOf(delivery).map((workspaceId) => turnOf({ lane, workspaceId }));
}

const ownerOf = (request: EnvelopeRequest): string => request?.workspace_id;

export function workspacesOf({ envelope }: Delivery): string[] {
  return Array.isArray(envelope?.requests) ? envelope.requests.map(ownerOf) : [];
}
