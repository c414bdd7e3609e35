import type pg from 'pg';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, createStore, deliver, purchase, readDeadLetters } from './batch.ts';

const MAX_EXACT = Number.MAX_SAFE_INTEGER;

let pool: pg.Pool;
let workspace: TestWorkspace;
beforeAll(async () => {
  ({ pool, workspace } = await createStore());
});
afterAll(() => pool.end());

async function customOf(externalId: string) {
  const { rows } = await pool.query(
    'select custom_attributes as custom from profiles where workspace_id = $1 and external_id = $2',
    [workspace.id, externalId],
  );
  return rows[0]?.custom;
}

test('G4: an increment beyond 2^53 - 1 becomes a dead letter, and the other objects apply', async () => {
  const points = (inc: number) => ({ change: { points: { inc } } });
  const beyond = attributes('ada', { ...points(2), set: { plan: 'pro' } });
  const stranger = attributes('bob', {
    set: { plan: 'pro' },
    change: { points: { inc: -MAX_EXACT }, more: { inc: 1 } },
  });
  const result = await applyBatch(pool, [
    deliver(workspace, [
      attributes('ada', { set: { points: MAX_EXACT - 1 } }),
      beyond,
      attributes('ada', points(1)),
      stranger,
    ]),
    deliver(workspace, [attributes('bob', points(-1)), attributes('ada', points(1))], 1),
  ]);
  expect(result).toMatchObject({ kind: 'applied', objects: 3 });
  expect(await customOf('ada')).toEqual({ points: MAX_EXACT });
  expect(await customOf('bob')).toEqual({ plan: 'pro', points: -MAX_EXACT, more: 1 });
  const deadLetters = await readDeadLetters(pool);
  expect(deadLetters.map(({ id }) => id)).toContain(beyond.id);
  expect(deadLetters).toHaveLength(3);
  for (const { reason } of deadLetters)
    expect(reason).toMatch(/^'points' is not valid: .*integers beyond 9007199254740991 lose digits/);
});

test('a user whose first increment is refused is not created', async () => {
  const stranger = attributes('eve', { change: { points: { inc: 1e308 }, more: { inc: MAX_EXACT } } });
  await applyBatch(pool, [deliver(workspace, [stranger])]);
  const overflow = attributes('mallory', { set: { a: 1 }, change: { points: { inc: Number.MAX_VALUE } } });
  await applyBatch(pool, [deliver(workspace, [overflow])]);
  expect(await customOf('mallory')).toBeUndefined();
  expect(await customOf('eve')).toBeUndefined();
});

test('sums of purchases beyond 2^53 are exact in Postgres', async () => {
  const buy = (price: number) => ({ ...purchase('rich'), product_id: 'island', price, quantity: 100 });
  await applyBatch(pool, [deliver(workspace, [buy(MAX_EXACT), buy(0.01)])]);
  await applyBatch(pool, [deliver(workspace, [buy(0.01)])]);
  const { rows } = await pool.query(
    "select sum(revenue)::text as revenue, sum(count)::text as count from purchase_summaries where product_id = 'island'",
  );
  expect(rows).toEqual([{ revenue: '900719925474099102.00', count: '300' }]);
});
