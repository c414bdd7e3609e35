import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Connection, Pool } from '../../src/store/database.ts';
import { takePlace } from '../../src/store/distributed.ts';
import { readAppliedWhole, recordWhole } from '../../src/store/ledger.ts';
import { inTransaction, type Limits } from '../../src/store/transactions.ts';
import { type Delivery, ownersOf, partsOf } from './open.ts';
import type { BatchResult, Part } from './parts.ts';

interface ShareOptions {
  part: Part;
  limits: Limits;
  /** What becomes of a share in its transaction: the same as of a whole batch on one Postgres. */
  run(
    tx: Connection,
    deliveries: Delivery[],
    given: { part: Part; commit: () => Promise<unknown> },
  ): Promise<BatchResult>;
}

/**
 * A batch on a distributed Postgres: a transaction for each workspace, one after the other, as long as the time of the part
 * lasts. One that fails keeps nothing of those before it: their ledger rows are there when all are tried again.
 */
export async function runShares(
  pool: Pool,
  deliveries: Delivery[],
  { part: whole, limits, run }: ShareOptions,
): Promise<BatchResult> {
  const until = performance.now() + whole.milliseconds;
  const begun = await notAppliedBefore(pool, deliveries);
  const shares = sharesOf(begun);
  const results: BatchResult[] = [];
  // What had its turn in an earlier part is skipped, and is none of this one.
  let hasBegun = false;
  for (const share of shares) {
    const isTurn = share.deliveries.some(({ only }) => only?.has(share.workspaceId) ?? true);
    if (!isTurn || (hasBegun && performance.now() > until)) {
      results.push(untouched(share, { isCut: isTurn }));
      continue;
    }
    const part = { ...whole, milliseconds: until - performance.now() };
    await makePlace(pool, share.workspaceId, limits);
    const apply = async (tx: Connection, commit: () => Promise<unknown>) => {
      await takePlace(tx, share.workspaceId);
      return run(tx, share.deliveries, { part, commit });
    };
    const result = await inTransaction(pool, apply, limits);
    hasBegun ||= result.kind === 'applied';
    results.push(result);
  }
  const all = together(
    shares.flatMap((share) => share.deliveries),
    results,
  );
  const ended = endedOf(begun, all);
  if (ended.length > 0) await recordWhole(pool, ended);
  return all;
}

/** The same without what took effect as a whole while the tables lay on one Postgres. */
async function notAppliedBefore(pool: Pool, deliveries: Delivery[]): Promise<Delivery[]> {
  const applied = await readAppliedWhole(
    pool,
    deliveries.map(({ id }) => id),
  );
  return deliveries.filter(({ id }) => !applied.has(id));
}

const placed = new WeakMap<Pool, LRUCache<string, true>>();

/**
 * The first transaction of a workspace would be the only one until it ends: whoever takes the same place waits for whether
 * it is kept. So it is there before, and taken by all of them at once.
 */
async function makePlace(pool: Pool, workspaceId: string, limits: Limits): Promise<void> {
  const known = placed.get(pool) ?? new LRUCache<string, true>({ max: 10_000 });
  placed.set(pool, known);
  if (known.get(workspaceId)) return;
  await inTransaction(pool, (tx) => takePlace(tx, workspaceId), limits);
  known.set(workspaceId, true);
}

/**
 * On a distributed Postgres a transaction is about one workspace, and an envelope may have objects of several. Then
 * each has its share of it, with a ledger row of its own. A row by the envelope's id follows behind all of them. So it
 * says what it says on one Postgres: all of the envelope has taken effect.
 */
interface Share {
  workspaceId: string;
  deliveries: Delivery[];
}

/** Characters of an id that stay: its time is among them, and where the rest begins. */
const KEPT = 24;
const OWN = 12;

/** The key of a share. It has its envelope's time, by which the ledger is read and forgotten. */
function shareId(id: string, workspaceId: string): string {
  return `${id.slice(0, KEPT)}${createHash('sha256').update(`${id} ${workspaceId}`).digest('hex').slice(0, OWN)}`;
}

/** Returns the shares of envelopes, each workspace at the place of its first envelope. */
export function sharesOf(deliveries: readonly Delivery[]): Share[] {
  const shares = new Map<string, Delivery[]>();
  for (const delivery of deliveries) {
    const owners = ownersOf(delivery.envelope);
    for (const workspaceId of owners) {
      const id = owners.size === 1 ? delivery.id : shareId(delivery.id, workspaceId);
      const share = { ...delivery, id, share: { workspaceId, of: delivery.id } };
      const others = shares.get(workspaceId);
      if (others) others.push(share);
      else shares.set(workspaceId, [share]);
    }
  }
  return [...shares].map(([workspaceId, own]) => ({ workspaceId, deliveries: own }));
}

/** What became of a share whose turn is in another part. */
function untouched({ workspaceId, deliveries }: Share, { isCut }: { isCut: boolean }): BatchResult {
  const leftOf = ({ envelope }: Delivery) => partsOf(envelope, 0).get(workspaceId)?.objects ?? 0;
  return {
    ...{ kind: 'applied', objects: 0, deadLetters: [], leavesTombstones: false, seconds: 0 },
    used: { objects: new Map(), loaded: new Map(), isCut, nextRound: Number.POSITIVE_INFINITY },
    left: new Map(deliveries.map((delivery) => [delivery.id, new Map([[workspaceId, leftOf(delivery)]])])),
  };
}

/** Envelopes of several of which nothing is left. */
function endedOf(deliveries: readonly Delivery[], result: BatchResult): string[] {
  const left = result.kind === 'applied' ? result.left : undefined;
  return deliveries
    .filter(({ id, envelope }) => !left?.has(id) && ownersOf(envelope).size > 1)
    .map(({ id }) => id);
}

/** What became of a batch, of what became of its shares. */
export function together(deliveries: readonly Delivery[], results: readonly BatchResult[]): BatchResult {
  const applied = results.flatMap((result) => (result.kind === 'applied' ? [result] : []));
  if (applied.length === 0) return { kind: 'skipped' };
  const of = new Map(deliveries.map(({ id, share }) => [id, share?.of ?? id]));
  const left = new Map<string, Map<string, number>>();
  for (const result of applied)
    for (const [id, counts] of result.left ?? []) {
      const envelope = of.get(id) ?? id;
      left.set(envelope, new Map([...(left.get(envelope) ?? []), ...counts]));
    }
  return {
    kind: 'applied',
    objects: applied.reduce((sum, { objects }) => sum + objects, 0),
    deadLetters: applied.flatMap(({ deadLetters }) => deadLetters),
    leavesTombstones: applied.some(({ leavesTombstones }) => leavesTombstones),
    seconds: applied.reduce((sum, { seconds }) => sum + seconds, 0),
    used: {
      // A share is of one workspace.
      objects: new Map(applied.flatMap(({ used }) => [...used.objects])),
      loaded: new Map(applied.flatMap(({ used }) => [...used.loaded])),
      isCut: applied.some(({ used }) => used.isCut),
      nextRound: Math.min(...applied.map(({ used }) => used.nextRound)),
    },
    ...(left.size > 0 && { left }),
  };
}
