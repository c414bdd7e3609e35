import type pg from 'pg';
import { v5 as uuidv5, v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { forgetEnvelopes } from '../../src/store/ledger.ts';
import { forgetOutcomes } from '../../src/store/outcomes.ts';
import { forgetInvalidNumbers } from '../../src/store/suppression-lists.ts';
import { forgetEndedExpected } from '../../src/store/sync-boundary.ts';
import { forgetRuns } from '../../src/store/sync-runs.ts';
import { createStore } from '../workers/batch.ts';

const DAY = 86_400_000;
/** Returns an id that was created so many days ago. */
const daysAgo = (days: number) => uuidv7({ msecs: Date.now() - days * DAY });
/** Makes the id of a replay, which contains no time. */
const replay = (name: string) => uuidv5(name, uuidv5.URL);

let pool: pg.Pool;
let workspaceId: string;
beforeAll(async () => {
  const store = await createStore();
  pool = store.pool;
  workspaceId = store.workspace.id;
});
afterAll(() => pool.end());

async function idsOf(table: string, column: string): Promise<string[]> {
  return (await pool.query(`select ${column} as id from ${table}`)).rows.map(({ id }) => id).sort();
}

test('envelopes, replays included, are deleted by the time when they were applied', async () => {
  const [old, late, young] = [daysAgo(9), daysAgo(9), daysAgo(1)];
  const [oldReplay, youngReplay] = [replay('old'), replay('young')];
  await pool.query(
    `insert into ledger (envelope_id, applied_at)
     select given.id, now() - make_interval(days => given.days)
     from unnest($1::uuid[], $2::integer[]) as given (id, days)`,
    [
      [old, late, young, oldReplay, youngReplay],
      [9, 6, 1, 9, 6],
    ],
  );
  await forgetEnvelopes(pool, 7);
  expect(await idsOf('ledger', 'envelope_id')).toEqual([late, young, youngReplay].sort());
});

test('outcomes are deleted a day after they were decided, and not earlier', async () => {
  const [old, late, young] = [daysAgo(3), daysAgo(3), daysAgo(0.5)];
  await pool.query(
    `insert into outcomes (object_id, decided_at)
     select given.id, now() - make_interval(hours => given.hours)
     from unnest($1::uuid[], $2::integer[]) as given (id, hours)`,
    [
      [old, late, young],
      [70, 12, 12],
    ],
  );
  await forgetOutcomes(pool);
  expect(await idsOf('outcomes', 'object_id')).toEqual([late, young].sort());
});

test('old invalid numbers without an owner are deleted page by page', async () => {
  await pool.query(
    `insert into invalid_phone_numbers (workspace_id, phone, reason, detected_at)
     select $1, given.phone, 'deactivated', now() - make_interval(days => given.days)
     from (values ('+14155550001', 91), ('+14155550002', 89), ('+14155550003', 91)) as given (phone, days)`,
    [workspaceId],
  );
  await pool.query(
    `insert into profiles (workspace_id, id, phone, phone_valid, created_at, updated_at)
     select $1, $2, '+14155550003', true, now(), now()`,
    [workspaceId, uuidv7()],
  );
  expect(await forgetInvalidNumbers(pool, { workspaceId, phone: '+14155550001' })).toBeUndefined();
  expect(await idsOf('invalid_phone_numbers', 'phone')).toHaveLength(3);
  expect(await forgetInvalidNumbers(pool, undefined)).toBeUndefined();
  expect(await idsOf('invalid_phone_numbers', 'phone')).toEqual(['+14155550002', '+14155550003']);
});

/** Inserts a run of a new integration, and an error row of an attempt that the deletion has to skip. */
async function begun(days: number, ended: number | null): Promise<string> {
  const [id, integration] = [daysAgo(days), uuidv7()];
  await pool.query(
    `insert into integrations (id, workspace_id, name, kind, warehouse_type, status, source)
     values ($1::uuid, $2, $1::text, 'attributes', 'postgres', 'active', '{}')`,
    [integration, workspaceId],
  );
  await pool.query(
    `insert into sync_jobs (id, integration_id, asked_by, finished_at)
     values ($1, $2, 'api', now() - make_interval(days => $3::integer))`,
    [id, integration, ended],
  );
  await pool.query(
    "insert into sync_expected (attempt, fingerprint, job_id, remaining) select $1, decode(lpad(to_hex(n), 8, '0'), 'hex'), $2, 1 from generate_series(1, 3) as n",
    [uuidv7(), id],
  );
  return id;
}

test('attempts are deleted once their run has ended, and runs twelve months later', async () => {
  const old = await begun(400, 399);
  const [late, unfinished, ended] = [await begun(400, 300), await begun(400, null), await begun(1, 0)];
  const young = await begun(0, null);
  await forgetEndedExpected(pool);
  expect(await idsOf('sync_expected', 'distinct job_id')).toEqual([unfinished, young].sort());
  await forgetEndedExpected(pool);
  await forgetRuns(pool);
  expect(await idsOf('sync_jobs', 'id')).toEqual([late, unfinished, ended, young].sort());
  expect(await idsOf('sync_jobs', 'id')).not.toContain(old);
  await pool.query('delete from sync_expected');
  await forgetEndedExpected(pool);
});
