import { LRUCache } from 'lru-cache';
import { type Connection, inTransaction, type Limits, type Pool } from '../../src/store/database.ts';
import { takePlace } from '../../src/store/distributed.ts';
import { readAppliedWhole, recordWhole } from '../../src/store/ledger.ts';
import { endedOf, type Share, sharesOf, together, untouched } from './by-workspace.ts';
import type { BatchResult } from './failures.ts';
import type { Delivery } from './open.ts';
import type { Part } from './parts.ts';

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
  const { late, isForOthers } = whole;
  const shares = sharesOf(begun, late);
  const isLate = ({ workspaceId }: Share) => late.has(workspaceId);
  const leavesLate = isForOthers && !shares.every(isLate);
  const results: BatchResult[] = [];
  // What had its turn in an earlier part is skipped, and is none of this one. Those whose time was over have a turn as well.
  const hasBegun = { inTime: false, late: false };
  for (const share of shares) {
    const turn = isLate(share) ? 'late' : 'inTime';
    if ((hasBegun[turn] && performance.now() > until) || (leavesLate && isLate(share))) {
      results.push(untouched(share));
      continue;
    }
    const part = { ...whole, milliseconds: until - performance.now() };
    await makePlace(pool, share.workspaceId, limits);
    const apply = async (tx: Connection, commit: () => Promise<unknown>) => {
      await takePlace(tx, share.workspaceId);
      return run(tx, share.deliveries, { part, commit });
    };
    const result = await inTransaction(pool, apply, limits);
    hasBegun[turn] ||= result.kind === 'applied';
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
