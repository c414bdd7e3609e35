import { ByWorkspace } from './by-workspace.ts';
import { type Delivery, workspacesOf } from './open.ts';

/**
 * Objects from which on a transaction is large. It takes long enough that those of other workspaces should not wait for
 * it. Its round trips and its COMMIT cost little: as many are worth one of their own beside one that is running, when this
 * process works on one while Postgres works on the other. Fewer wait for it to end, and share the next one, unless they
 * overtake it.
 */
export const LARGE = 200;

/** What a lane has handed in at once, and waits for. */
export interface HandedIn {
  deliveries: Delivery[];
  done(): void;
  /** Could not be applied beside a transaction: it waits for one of all. */
  inPlace?: boolean;
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
  return batch.flatMap(({ deliveries, done }) => {
    const own = deliveries.filter(({ id }) => left.has(id));
    return own.length > 0 ? [{ deliveries: own, done }] : [];
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
  const waiting = new LaneTurns();
  const [inFront, behind]: [HandedIn[], HandedIn[]] = [[], []];
  for (const piece of pieces) {
    const isLate = piece.deliveries.flatMap(workspacesOf).some((workspace) => late.has(workspace));
    if (!isLate && !waiting.meet(piece)) {
      inFront.push(piece);
      continue;
    }
    behind.push(piece);
    waiting.add(piece);
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
  const waiting = new LaneTurns();
  for (const piece of left) waiting.add(piece);
  const [first] = behind;
  const mayGo = first && !waiting.meet(first);
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

/**
 * What some workspaces have in some lanes. The objects of one workspace in one lane take effect in their order; its time is
 * counted over all lanes.
 */
export class LaneTurns {
  readonly #turns = new ByWorkspace<true, number>();

  add({ deliveries }: HandedIn): void {
    for (const delivery of deliveries)
      for (const workspaceId of workspacesOf(delivery)) this.#turns.set(workspaceId, delivery.lane, true);
  }

  /** Whether something of a piece is about one of these. */
  meet({ deliveries }: HandedIn): boolean {
    return deliveries.some((delivery) =>
      workspacesOf(delivery).some((workspaceId) => this.#turns.has(workspaceId, delivery.lane)),
    );
  }
}
