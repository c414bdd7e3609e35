import { afterAll, beforeAll, expect } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Database, Pool } from '../../src/store/database.ts';
import { everyStatementByIndex } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { Scheduler } from '../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { startTombstoneCleanup } from '../../workers/upkeep/tombstones.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { lengthOf } from '../setup/length.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { applyThrough } from '../workers/apply-through.ts';
import { createStore, deliver, event, readSums, silent } from '../workers/batch.ts';

/** Milliseconds that a busy machine may take to fill and settle large users. */
export const FILLING = 240_000;

/**
 * Milliseconds until a neighbour is readable. It takes about 100 on a quiet machine; all rows at once took more than
 * ten seconds.
 */
export const DEADLINE = 3000;

/**
 * The short form counts the rows that a lane touches; the long form has enough rows to delay a neighbour
 * measurably.
 */
export const SUMS = lengthOf({ short: 10_000, long: 200_000 });
export const TOKENS = lengthOf({ short: 3000, long: 50_000 });
export const CHANGES = lengthOf({ short: 3000, long: 50_000 });

/**
 * Maximum number of rows of one user that a lane may touch, in all tables together: the rest is settled
 * outside of lanes.
 */
export const MAX_TOUCHED = 500;

export let url: string;
let database: Database;
export let pool: Pool;
export let workspace: TestWorkspace;
let neighbour: TestWorkspace;

/** Creates a database for the tests of the calling file. */
export function growingScene(): void {
  beforeAll(async () => {
    const scene = await createStore();
    await scene.pool.end();
    ({ url, workspace } = scene);
    // Opened as by a worker, on tables without statistics.
    database = openDatabase(url, 5, { session: { ...everyStatementByIndex } });
    pool = database.pool;
    neighbour = await createWorkspace(pool, crypto.randomUUID());
  });
  afterAll(() => database.stop());
}

export async function store(...objects: AcceptedObject[]): Promise<void> {
  for (const object of objects) await applyBatch(pool, [deliver(workspace, [object])]);
}

/**
 * Returns the milliseconds until a neighbour's event is readable that was accepted after these objects, in
 * the same lane.
 */
export async function neighbourWaits(...objects: AcceptedObject[]): Promise<number> {
  const scheduler = new Scheduler(pool, { metrics: createWorkerMetrics(), log: silent });
  const { events } = await readSums(pool, neighbour);
  const attack = deliver(workspace, objects);
  const before = performance.now();
  await applyThrough(scheduler, attack, deliver(neighbour, [event('neighbour')]));
  const waited = performance.now() - before;
  expect(await readSums(pool, neighbour)).toMatchObject({ events: events + 1 });
  return waited;
}

export async function idOf(externalId: string): Promise<string> {
  const { rows } = await pool.query('select id from profiles where workspace_id = $1 and external_id = $2', [
    workspace.id,
    externalId,
  ]);
  return rows[0].id;
}

/**
 * Inserts rows of a user directly into the tables: sums of events that have the same names for all users,
 * tokens, history.
 */
export async function grow(externalId: string, { sums = 0, tokens = 0, changes = 0 }): Promise<string> {
  await store(event(externalId, 'first'));
  const id = await idOf(externalId);
  const values = [workspace.id, id];
  await pool.query(
    `insert into event_summaries (workspace_id, profile_id, name, first, last, count, updated_at)
     select $1, $2, 'kind' || number, now(), now(), 2, now() from generate_series(1, $3::integer) as number`,
    [...values, sums],
  );
  await pool.query(
    `insert into purchase_summaries (
       workspace_id, profile_id, product_id, currency, first, last, count, revenue, updated_at)
     select $1, $2, 'product' || number, 'EUR', now(), now(), 2, 0.5, now()
     from generate_series(1, $3::integer) as number`,
    [...values, sums / 10],
  );
  await pool.query(
    `insert into push_tokens (workspace_id, app_id, token, device_id, profile_id, created_at)
     select $1, 'app', $2::uuid || 'token' || number, 'device' || number, $2::uuid, now()
     from generate_series(1, $3::integer) as number`,
    [...values, tokens],
  );
  await pool.query(
    `insert into subscription_history (
       workspace_id, subject_kind, subject, subscription, to_state, changed_at, request_id)
     select $1, 'profile', $2::uuid::text, '', 'subscribed', now(), 'request'
     from generate_series(1, $3::integer) as number`,
    [...values, changes],
  );
  return id;
}

/** Counts the rows of a user. */
export async function belongingsOf(id: string) {
  const { rows } = await pool.query(
    `select
       (select coalesce(sum(count), 0)::integer from event_summaries where workspace_id = $1 and profile_id = $2)
         as events,
       (select coalesce(sum(revenue), 0)::float from purchase_summaries
         where workspace_id = $1 and profile_id = $2) as revenue,
       (select count(*)::integer from push_tokens where workspace_id = $1 and profile_id = $2) as tokens,
       (select count(*)::integer from subscription_history
         where workspace_id = $1 and subject_kind = 'profile' and subject = $2::uuid::text) as changes`,
    [workspace.id, id],
  );
  return rows[0];
}

/** Counts the stored rows of a user. */
export async function rowsOf(id: string): Promise<number> {
  const { rows } = await pool.query(
    `select (
       (select count(*) from event_summaries where workspace_id = $1 and profile_id = $2)
       + (select count(*) from purchase_summaries where workspace_id = $1 and profile_id = $2)
       + (select count(*) from push_tokens where workspace_id = $1 and profile_id = $2)
       + (select count(*) from subscription_history
           where workspace_id = $1 and subject_kind = 'profile' and subject = $2::uuid::text)
     )::integer as count`,
    [workspace.id, id],
  );
  return rows[0].count;
}

export const nothing = { events: 0, revenue: 0, tokens: 0, changes: 0 };

export async function left(): Promise<number> {
  const { rows } = await pool.query('select count(*)::integer as left from removed_profiles');
  return rows[0].left;
}

/** Settles until no tombstone is left. */
export async function cleanUp(workers = 1): Promise<void> {
  const running = Array.from({ length: workers }, () => startTombstoneCleanup(pool, silent));
  try {
    await waitUntil(async () => (await left()) === 0, { what: 'all to be settled', deadline: FILLING });
  } finally {
    await Promise.all(running.map((one) => one.stop()));
  }
}
