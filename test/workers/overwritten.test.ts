import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { runBatch } from '../../workers/batch/run-batch.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { askEverywhere } from '../setup/nodes.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, createStore, deliver, point, waitForLocks } from './batch.ts';

/** Tests for users that are only overwritten, regardless of stored values: they are not locked before the update. */

let pool: pg.Pool;
let workspace: TestWorkspace;
beforeAll(async () => {
  ({ pool } = await createStore());
});
beforeEach(async () => {
  workspace = await createWorkspace(pool, crypto.randomUUID());
});
afterAll(() => pool.end());

async function profileOf(user: string) {
  const { rows } = await pool.query(
    `select id, custom_attributes as custom, first_name, email from profiles
     where workspace_id = $1 and external_id = $2`,
    [workspace.id, user],
  );
  return rows[0];
}

const apply = (...objects: AcceptedObject[]) => applyBatch(pool, [deliver(workspace, objects)]);

/** Runs `meanwhile` while another transaction has executed `statement` but not ended; then commits that transaction. */
async function inOther(statement: string, values: unknown[], meanwhile: () => Promise<void>): Promise<void> {
  const other = await pool.connect();
  try {
    await other.query('begin');
    await other.query(statement, values);
    await meanwhile();
  } finally {
    // An open transaction would block everything that waits for the transactions of this server.
    await other.query('commit');
    other.release();
  }
}

/** Returns whether a matching statement waits for a lock, on any node; a node has its own wording of the statement. */
async function waitsForLock(statement: string): Promise<boolean> {
  const waiting = await askEverywhere<{ query: string }>(
    pool.options.connectionString!,
    `select query from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
  );
  return waiting.some(({ query }) => new RegExp(statement, 'is').test(query));
}

test('G2: if a user is gone when it is overwritten, the batch rolls back and a retry applies all', async () => {
  waitForLocks();
  await apply(attributes('ann', { set: { a: 1 } }), attributes('bob', { set: { a: 1 } }));
  const delivery = deliver(workspace, [
    attributes('bob', { set: { a: 2 } }),
    attributes('ann', { set: { a: 2 } }),
  ]);
  let applied: Promise<string> | undefined;
  const removal = 'delete from profiles where workspace_id = $1 and external_id = $2';
  await inOther(removal, [workspace.id, 'ann'], async () => {
    applied = runBatch(pool, [delivery]).then(
      () => 'applied',
      (error: Error) => error.message,
    );
    await waitUntil(() => waitsForLock(String.raw`^\s*update (public\.)?profiles`), {
      what: 'the update to wait for the other',
    });
  });
  expect(await applied).toBe('profiles were merged or deleted while they were being changed');
  expect((await profileOf('bob')).custom).toEqual({ a: 1 });
  expect(await applyBatch(pool, [delivery])).toMatchObject({ kind: 'applied', objects: 2 });
  expect((await profileOf('ann')).custom).toEqual({ a: 2 });
  expect((await profileOf('bob')).custom).toEqual({ a: 2 });
});

test('G3: with several lanes, users are locked in a fixed order before any change', async () => {
  waitForLocks();
  await apply(attributes('ann', { set: { a: 1 } }));
  const delivery = { ...deliver(workspace, [attributes('ann', { set: { a: 2 } })]), lanes: 2 };
  let applied: ReturnType<typeof applyBatch> | undefined;
  await inOther('select from profiles where workspace_id = $1 for update', [workspace.id], async () => {
    applied = applyBatch(pool, [delivery]);
    await waitUntil(() => waitsForLock(String.raw`wanted\.place\)?::integer.*"externalId"`), {
      what: 'the lock to be waited for',
    });
  });
  expect(await applied).toMatchObject({ kind: 'applied' });
  expect((await profileOf('ann')).custom).toEqual({ a: 2 });
});

test('G3: overwrites and changes that use the stored value take effect in order', async () => {
  await apply(attributes('ann', { set: { a: 1 } }), point('ann'));
  await apply(
    attributes('ann', { set: { points: 10 }, standard: { first_name: 'Ann' } }),
    point('ann'),
    attributes('ann', { set: { a: null } }),
    attributes('bob', { set: { a: 3 }, standard: { email: 'bob@example.com' } }),
  );
  expect(await profileOf('ann')).toMatchObject({ custom: { points: 11 }, first_name: 'Ann' });
  await apply(
    attributes('ann', { set: { points: 5 } }),
    attributes({ email: 'bob@example.com' }, { set: { a: 4 } }),
  );
  await apply(attributes('bob', { set: { b: 1 } }), point('bob'), point('ann'));
  expect((await profileOf('ann')).custom).toEqual({ points: 6 });
  expect(await profileOf('bob')).toMatchObject({
    custom: { a: 4, b: 1, points: 1 },
    email: 'bob@example.com',
  });
});
