import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { applyTogether } from '../../workers/batch/run-batch.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { askEverywhere } from '../setup/nodes.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, createStore, deliver, point, silent, waitForLocks } from './batch.ts';

/** Users who are overwritten only, whatever is stored of them, are not locked before they are changed. */

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

const apply = (...objects: AcceptedObject[]) => applyBatch(pool, [deliver(workspace, objects)], silent);

/** Runs `meanwhile` while another transaction has done `statement` and not ended; that one commits at the end. */
async function inOther(statement: string, values: unknown[], meanwhile: () => Promise<void>): Promise<void> {
  const other = await pool.connect();
  try {
    await other.query('begin');
    await other.query(statement, values);
    await meanwhile();
  } finally {
    // Left open it would hold up whoever waits for the transactions of this server.
    await other.query('commit');
    other.release();
  }
}

/** Whether a statement waits for a lock of this database's, on whichever node the row lies: a node has words of its own. */
async function waitsForLock(statement: string): Promise<boolean> {
  const waiting = await askEverywhere<{ query: string }>(
    pool.options.connectionString!,
    `select query from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`,
  );
  return waiting.some(({ query }) => new RegExp(statement, 'is').test(query));
}

test('G2: a user who is gone when it comes to overwrite them leaves nothing half done, and the next try has all of it', async () => {
  waitForLocks();
  await apply(attributes('ann', { set: { a: 1 } }), attributes('bob', { set: { a: 1 } }));
  const delivery = deliver(workspace, [
    attributes('bob', { set: { a: 2 } }),
    attributes('ann', { set: { a: 2 } }),
  ]);
  let applied: Promise<string> | undefined;
  const removal = 'delete from profiles where workspace_id = $1 and external_id = $2';
  await inOther(removal, [workspace.id, 'ann'], async () => {
    applied = applyTogether(pool, [delivery]).then(
      () => 'applied',
      (error: Error) => error.message,
    );
    await waitUntil(() => waitsForLock(String.raw`^\s*update (public\.)?profiles`), {
      what: 'the update to wait for the other',
    });
  });
  expect(await applied).toBe('profiles were merged or deleted while they were being changed');
  expect((await profileOf('bob')).custom).toEqual({ a: 1 });
  expect(await applyBatch(pool, [delivery], silent)).toMatchObject({ kind: 'applied', objects: 2 });
  expect((await profileOf('ann')).custom).toEqual({ a: 2 });
  expect((await profileOf('bob')).custom).toEqual({ a: 2 });
});

test('G3: with several lanes the users of a batch are locked in one order before any of them is changed', async () => {
  waitForLocks();
  await apply(attributes('ann', { set: { a: 1 } }));
  const delivery = { ...deliver(workspace, [attributes('ann', { set: { a: 2 } })]), lanes: 2 };
  let applied: ReturnType<typeof applyBatch> | undefined;
  await inOther('select from profiles where workspace_id = $1 for update', [workspace.id], async () => {
    applied = applyBatch(pool, [delivery], silent);
    await waitUntil(() => waitsForLock(String.raw`wanted\.place\)?::integer.*"externalId"`), {
      what: 'the lock to be waited for',
    });
  });
  expect(await applied).toMatchObject({ kind: 'applied' });
  expect((await profileOf('ann')).custom).toEqual({ a: 2 });
});

test('G3: what overwrites and what counts on from the stored value take effect in their order', async () => {
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
