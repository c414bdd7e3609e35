import { createHash } from 'node:crypto';
import { LRUCache } from 'lru-cache';
import type { Connection, Pool } from '../../src/store/database.ts';
import { declareWorkspace } from '../../src/store/distributed.ts';
import { countLeftObjects, readApplied, readAppliedWhole, recordWhole } from '../../src/store/ledger.ts';
import { inTransaction, type Limits } from '../../src/store/transactions.ts';
import { type Delivery, keyOf, ownersOf, partsOf } from './open.ts';
import type { BatchResult, Part } from './parts.ts';

interface ShareOptions {
  part: Part;
  limits: Limits;
  /** Applies a share in its transaction, in the same way as a whole batch on a single Postgres. */
  run(
    tx: Connection,
    deliveries: Delivery[],
    given: { part: Part; commit: () => Promise<unknown> },
  ): Promise<BatchResult>;
}

/**
 * Applies a batch on a distributed Postgres: one transaction per workspace, one after the other, until the time of the
 * part is over. If a transaction fails, the earlier ones stay committed; their ledger rows exclude them from the retry.
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
  const waiting: Share[] = [];
  // If an earlier transaction has applied a share, the result is `skipped`, and the next share may still start after
  // the deadline.
  let hasBegun = false;
  for (const share of shares) {
    if (!isTurnOf(share) || (hasBegun && performance.now() > until)) {
      waiting.push(share);
      continue;
    }
    const part = { ...whole, milliseconds: until - performance.now() };
    await createWorkspaceRow(pool, share.workspaceId, limits);
    const apply = async (tx: Connection, commit: () => Promise<unknown>) => {
      await declareWorkspace(tx, share.workspaceId);
      return run(tx, share.deliveries, { part, commit });
    };
    const result = await inTransaction(pool, apply, limits);
    hasBegun ||= result.kind === 'applied';
    results.push(result);
  }
  if (waiting.length > 0) results.push(await resultOfWaiting(pool, waiting));
  const all = joinResults(
    shares.flatMap((share) => share.deliveries),
    results,
  );
  const ended = endedOf(begun, all);
  if (ended.length > 0) await recordWhole(pool, ended);
  return all;
}

/** Removes envelopes that took effect as a whole while the tables were on a single Postgres. */
async function notAppliedBefore(pool: Pool, deliveries: Delivery[]): Promise<Delivery[]> {
  const applied = await readAppliedWhole(
    pool,
    deliveries.map(({ id }) => id),
  );
  return deliveries.filter(({ id }) => !applied.has(id));
}

const declared = new WeakMap<Pool, LRUCache<string, true>>();

/**
 * Creates the place row of a workspace in advance. Otherwise, the first transaction of the workspace would insert it,
 * and all concurrent transactions would wait for that one to end. Once the row exists, no transaction waits for it.
 */
async function createWorkspaceRow(pool: Pool, workspaceId: string, limits: Limits): Promise<void> {
  const declaredIds = declared.get(pool) ?? new LRUCache<string, true>({ max: 10_000 });
  declared.set(pool, declaredIds);
  if (declaredIds.get(workspaceId)) return;
  await inTransaction(pool, (tx) => declareWorkspace(tx, workspaceId), limits);
  declaredIds.set(workspaceId, true);
}

/**
 * The part of one workspace in the envelopes of a batch. On a distributed Postgres, a transaction concerns a single
 * workspace, but an envelope can contain objects of several. Each workspace then has a share with its own ledger row.
 * A row with the envelope's id is written after all shares. As on a single Postgres, that row means that the whole
 * envelope has taken effect.
 */
interface Share {
  workspaceId: string;
  deliveries: Delivery[];
}

/**
 * A share id consists of the first `KEPT` characters of the envelope id, which contain its time, and `OWN` hash digits.
 */
const KEPT = 24;
const OWN = 12;

/** Returns the ledger key of a share. It keeps the time of the envelope id, by which the ledger is read and pruned. */
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

/** Whether the batch takes objects of the share's workspace. */
const isTurnOf = ({ workspaceId, deliveries }: Share): boolean =>
  deliveries.some(({ only }) => only?.has(workspaceId) ?? true);

/**
 * Returns the result of shares without a transaction: the batch takes only objects of other workspaces, or its time was
 * over. `left` has the numbers of their objects that no earlier batch has applied.
 */
async function resultOfWaiting(pool: Pool, shares: readonly Share[]): Promise<BatchResult> {
  // Another worker may finish a share between the two statements. The ledger is read last, so that such a share is
  // finished here as well. Otherwise, all of its objects would count as remaining.
  const counts = await countLeftObjects(
    pool,
    shares.flatMap(({ deliveries }) => deliveries.map(keyOf)),
  );
  const applied = await readApplied(
    pool,
    shares.flatMap(({ deliveries }) => deliveries.map(({ id }) => id)),
  );
  const left = new Map<string, Map<string, number>>();
  let isCut = false;
  for (const share of shares) {
    const { workspaceId, deliveries } = share;
    const unfinished = deliveries.filter(({ id }) => !applied.has(id));
    for (const { id, envelope } of unfinished) {
      const objects = counts.get(id) ?? partsOf(envelope, 0).get(workspaceId)?.objects ?? 0;
      left.set(id, new Map([[workspaceId, objects]]));
    }
    isCut ||= unfinished.length > 0 && isTurnOf(share);
  }
  if (left.size === 0) return { kind: 'skipped' };
  return {
    ...{ kind: 'applied', objects: 0, deadLetters: [], leavesTombstones: false, seconds: 0 },
    used: { objects: new Map(), loaded: new Map(), isCut, nextRound: Number.POSITIVE_INFINITY },
    left,
  };
}

/** Returns the ids of envelopes of several workspaces of which all shares are finished. */
function endedOf(deliveries: readonly Delivery[], result: BatchResult): string[] {
  const left = result.kind === 'applied' ? result.left : undefined;
  return deliveries
    .filter(({ id, envelope }) => !left?.has(id) && ownersOf(envelope).size > 1)
    .map(({ id }) => id);
}

/** Combines the results of the shares of a batch. */
export function joinResults(deliveries: readonly Delivery[], results: readonly BatchResult[]): BatchResult {
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
      // Each share concerns one workspace, so the keys do not collide.
      objects: new Map(applied.flatMap(({ used }) => [...used.objects])),
      loaded: new Map(applied.flatMap(({ used }) => [...used.loaded])),
      isCut: applied.some(({ used }) => used.isCut),
      nextRound: Math.min(...applied.map(({ used }) => used.nextRound)),
    },
    ...(left.size > 0 && { left }),
  };
}
