import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createCoalescer } from '../../workers/coalescer.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { createStore, deliver, event, point, readSums, silent } from './batch.ts';

let pool: pg.Pool;
beforeAll(async () => {
  ({ pool } = await createStore());
});
afterAll(() => pool.end());

/** A coalescer whose first envelope, of lane 0, is in a transaction that waits for a lock until `release`. */
async function startBehindLock() {
  const workspace = await createWorkspace(pool, crypto.randomUUID());
  const metrics = createWorkerMetrics();
  const coalescer = createCoalescer(
    pool,
    metrics,
    () => {},
    () => {},
    silent,
  );
  await coalescer.apply(deliver(workspace, [point('ann')]));
  const blocker = await pool.connect();
  await blocker.query('begin');
  await blocker.query('select from profiles where workspace_id = $1 for update', [workspace.id]);
  const first = coalescer.apply(deliver(workspace, [point('ann')]));
  return {
    workspace,
    coalescer,
    first,
    transactions: async () => (await metrics.batches.get()).values.reduce((sum, { value }) => sum + value, 0),
    async release() {
      await blocker.query('commit');
      blocker.release();
    },
  };
}

const visits = (count: number) => Array.from({ length: count }, (_, index) => event(`visitor-${index}`));

test('a large envelope of another lane takes effect beside a transaction that waits', async () => {
  const { workspace, coalescer, first, release } = await startBehindLock();
  await coalescer.apply(deliver(workspace, visits(500), 1));
  expect(await readSums(pool, workspace)).toMatchObject({ events: 500, points: 1 });
  await release();
  await first;
  expect(await readSums(pool, workspace)).toMatchObject({ events: 500, points: 2 });
});

test('small envelopes of other lanes share the transaction after the one that runs', async () => {
  const { workspace, coalescer, first, transactions, release } = await startBehindLock();
  const before = await transactions();
  const small = [1, 2, 3].map((lane) => coalescer.apply(deliver(workspace, visits(10), lane)));
  await release();
  await Promise.all([first, ...small]);
  expect(await transactions()).toBe(before + 2);
  expect(await readSums(pool, workspace)).toMatchObject({ events: 30, points: 2 });
});

test('small envelopes that are large together do not wait either', async () => {
  const { workspace, coalescer, first, transactions, release } = await startBehindLock();
  const before = await transactions();
  await Promise.all([1, 2, 3].map((lane) => coalescer.apply(deliver(workspace, visits(100), lane))));
  expect(await readSums(pool, workspace)).toMatchObject({ events: 300, points: 1 });
  await release();
  await first;
  expect(await transactions()).toBeLessThanOrEqual(before + 3);
});
