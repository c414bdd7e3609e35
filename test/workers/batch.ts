import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { onTestFinished } from 'vitest';
import type {
  AcceptedAttributes,
  AcceptedEvent,
  AcceptedObject,
  AcceptedPurchase,
} from '../../src/jobs/envelope.ts';
import { createLog } from '../../src/platform/log.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import { openPool as openStore } from '../../src/store/database.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { LIMITS } from '../../workers/batch/run-batch.ts';
import { SHARED_LIMITS } from '../../workers/lane/scheduler.ts';
import { createDatabase } from '../setup/fixtures.ts';
import { makeTriggers } from '../setup/make-triggers.ts';
import { askEverywhere } from '../setup/nodes.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';

export { makeTriggers };

export const silent = createLog('test', 'silent');

/** Creates a database with one workspace. */
export async function createStore() {
  const { url } = await createDatabase();
  const pool = openPool(url);
  return { url, pool, workspace: await createWorkspace(pool) };
}

/** Opens a pool with the same options as the processes. */
export function openPool(connectionString: string): pg.Pool {
  return openStore(connectionString, 8);
}

/** Returns the start time of the transaction that waits for a lock; a retry has a later time. Undefined without one. */
export async function waitingSince(pool: pg.Pool): Promise<string | undefined> {
  // The locked row can be on any node.
  const [waiting] = await askEverywhere<{ began: string }>(
    pool.options.connectionString!,
    `select xact_start::text as began from pg_stat_activity
     where wait_event_type = 'Lock' and datname = current_database()`,
  );
  return waiting?.began;
}

/**
 * Locks users in a separate transaction.
 *
 * @param which SQL condition for rows of `profiles`
 * @returns a function that releases the locks; the end of the test releases them too
 */
export async function lockUsers(
  pool: pg.Pool,
  which: string,
  values: unknown[],
): Promise<() => Promise<void>> {
  const holder = await pool.connect();
  let isHeld = true;
  const release = async () => {
    if (!isHeld) return;
    isHeld = false;
    await holder.query('commit');
    holder.release();
  };
  onTestFinished(release);
  await holder.query('begin');
  await holder.query(`select from profiles where ${which} for update`, values);
  return release;
}

/** Raises the batch timeouts for this test, so that its result does not depend on the speed of the machine. */
export function waitForLocks(): void {
  for (const limits of [LIMITS, SHARED_LIMITS]) {
    const before = { ...limits };
    Object.assign(limits, { statement: 120_000, lock: 120_000 });
    onTestFinished(() => void Object.assign(limits, before));
  }
}

/** Creates an envelope with these objects in one request, as a lane delivers it. */
export function deliver(workspace: Pick<TestWorkspace, 'id'>, objects: AcceptedObject[], lane = 0): Delivery {
  const request = {
    request_id: uuidv7(),
    workspace_id: workspace.id,
    accepted_at: new Date().toISOString(),
    count: objects.length,
  };
  return { id: uuidv7(), lane, envelope: { requests: [request], objects } };
}

/**
 * Applies envelopes in as many parts as they have rounds, as if all of them were redelivered for each part.
 *
 * @returns the number of parts
 */
export async function applyInParts(pool: pg.Pool, deliveries: Delivery[]): Promise<number> {
  for (let parts = 1; ; parts++) {
    const result = await applyBatch(pool, deliveries, { milliseconds: 0 });
    if (result.kind === 'skipped' || !result.left) return parts;
  }
}

const base = () => ({ id: uuidv7(), index: 0, create: true });

export function event(identifier: Identifier | string, name = 'visited'): AcceptedEvent {
  return { ...base(), kind: 'events', identifier: named(identifier), name, time: '2026-01-02T03:04:05.000Z' };
}

export function purchase(identifier: Identifier | string): AcceptedPurchase {
  const sale = { product_id: 'book', currency: 'EUR', price: 1.5, quantity: 1 };
  return {
    ...base(),
    kind: 'purchases',
    identifier: named(identifier),
    ...sale,
    time: '2026-01-02T03:04:05.000Z',
  };
}

export function attributes(
  identifier: Identifier | string,
  change: Partial<AcceptedAttributes>,
): AcceptedAttributes {
  return { ...base(), kind: 'attributes', identifier: named(identifier), ...change };
}

/** Returns an object that adds 1 to the attribute `points`. */
export function point(identifier: Identifier | string): AcceptedAttributes {
  return attributes(identifier, { change: { points: { inc: 1 } } });
}

/** Returns the identifier; a string is an external id. */
function named(identifier: Identifier | string): Identifier {
  return typeof identifier === 'string' ? { external_id: identifier } : identifier;
}

/** Makes Postgres refuse every event of this name. */
export async function refuseEvents(pool: pg.Pool, name: string): Promise<void> {
  await makeTriggers(pool, [
    `create or replace function refuse() returns trigger language plpgsql as $$
    begin
      raise exception '% is refused', new.name;
    end $$`,
    `create trigger refuse before insert on events
      for each row when (new.name = '${name}') execute function refuse()`,
  ]);
}

/** Returns totals of a workspace: users, points, events, counted events and usage. */
export async function readSums(pool: pg.Pool, { id }: Pick<TestWorkspace, 'id'>) {
  const { rows } = await pool.query(
    `select
       (select count(*)::integer from profiles where workspace_id = $1) as users,
       (select coalesce(sum((custom_attributes -> 'points')::integer), 0)::integer from profiles
         where workspace_id = $1) as points,
       (select count(*)::integer from events where workspace_id = $1) as events,
       (select coalesce(sum(count), 0)::integer from event_summaries where workspace_id = $1) as counted,
       (select coalesce(sum(attributes + events + purchases), 0)::integer from usage
         where workspace_id = $1) as usage`,
    [id],
  );
  return rows[0];
}

export interface Letter {
  id: string;
  workspace_id: string;
  request_id: string;
  kind: string;
  reason: string;
  object: unknown;
}

export async function readDeadLetters(pool: pg.Pool): Promise<Letter[]> {
  const { rows } = await pool.query<Letter>(
    'select id, workspace_id, request_id, kind, reason, object from dead_letters order by id',
  );
  return rows;
}
