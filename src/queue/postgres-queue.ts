import type { ClientBase, Pool, PoolClient } from 'pg';
import { jobs } from '../jobs/catalog.ts';
import { runMigrations } from './bullmq.ts';
import { QUEUE_SCHEMA } from './bullmq-queues.ts';

/**
 * Both halves of the advisory lock's key: "pstk" and "fnce" in ASCII. The second half differs from that of every
 * lane's lease.
 */
const LOCK = [0x7073746b, 0x666e6365].join(', ');

/**
 * BullMQ's Postgres backend hands out waiting jobs by `seq`, which an add takes long before it commits. Two
 * concurrent adds could take their numbers crosswise, so that one comes first in one lane and second in another: two
 * fences that wait for each other indefinitely. An add that contains a fence therefore waits for this lock until no
 * other such add is running, and takes its `seq` only then. Every fence is in all its lanes before the next one gets
 * a number.
 *
 * The lock ends with the transaction. The `when` condition is checked without a function call, so other jobs cost
 * next to nothing.
 */
const createFenceFunction = `
create or replace function ${QUEUE_SCHEMA}.penstock_order_fences() returns trigger
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(${LOCK});
  new.seq := nextval('${QUEUE_SCHEMA}.job_seq');
  return new;
end
$$`;

const createFenceTrigger = `
create trigger penstock_order_fences before insert on ${QUEUE_SCHEMA}.job
for each row when (new.name = '${jobs.fence}')
execute function ${QUEUE_SCHEMA}.penstock_order_fences()`;

/** Checked first, because creating a trigger would wait for every transaction that writes to the table. */
const findFenceTrigger = `
select from pg_trigger
 where tgname = 'penstock_order_fences' and tgrelid = '${QUEUE_SCHEMA}.job'::regclass`;

/** Makes all lanes agree on the order of fences. Needs BullMQ's tables; safe to repeat. */
async function orderFences(client: ClientBase): Promise<void> {
  await client.query(createFenceFunction);
  const { rowCount } = await client.query(findFenceTrigger);
  if (!rowCount) await client.query(createFenceTrigger);
}

/**
 * BullMQ's Postgres backend hands out waiting jobs by `seq`. When the worker of an active job stops responding,
 * `move_stalled_jobs_to_wait` sets the job back to waiting with `seq = nextval('job_seq')`. The job would go to the
 * tail, after jobs of the same users that were accepted later; on Redis it goes to the head. With its old `seq` it is
 * the first of its lane again, because a lane has one active job at a time.
 *
 * The `when` condition is checked without a function call, so every other update costs next to nothing.
 */
const createOrderFunction = `
create or replace function ${QUEUE_SCHEMA}.penstock_keep_order() returns trigger
language plpgsql as $$
begin
  new.seq := old.seq;
  return new;
end
$$`;

const createOrderTrigger = `
create trigger penstock_keep_order before update on ${QUEUE_SCHEMA}.job
for each row when (old.state = 'active' and new.state = 'waiting')
execute function ${QUEUE_SCHEMA}.penstock_keep_order()`;

/** Checked first, because creating a trigger would wait for every transaction that writes to the table. */
const findOrderTrigger = `
select from pg_trigger
 where tgname = 'penstock_keep_order' and tgrelid = '${QUEUE_SCHEMA}.job'::regclass`;

/**
 * Lets a job that goes back from active to waiting keep its position, and makes all lanes agree on the order of
 * fences. Needs BullMQ's tables; safe to repeat.
 */
async function keepOrder(client: ClientBase): Promise<void> {
  await client.query(createOrderFunction);
  const { rowCount } = await client.query(findOrderTrigger);
  if (!rowCount) await client.query(createOrderTrigger);
  await orderFences(client);
}

/**
 * Each job leaves four dead rows in a table of a few dozen live ones, and every query on the queue scans them. After
 * a minute at full load, counting the waiting jobs took 60 ms. The default threshold of Postgres, a fifth of the
 * table, does not suit such a small table; a thousand rows are a few seconds of work. The table is in memory, so
 * vacuum need not pause.
 */
const statement = `
alter table ${QUEUE_SCHEMA}.job set (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
)`;

/** Checked first, because the change would wait for a running vacuum. */
const findSetting = `
select from pg_class
 where oid = '${QUEUE_SCHEMA}.job'::regclass
   and 'autovacuum_vacuum_threshold=1000' = any (reloptions)`;

/** Lets autovacuum process the jobs' table on every run of the daemon. Needs BullMQ's tables; safe to repeat. */
async function vacuumOften(client: ClientBase): Promise<void> {
  const { rowCount } = await client.query(findSetting);
  if (!rowCount) await client.query(statement);
}

/** Creates or upgrades the tables of the queue. Safe to repeat. */
export async function migrateQueue(client: ClientBase): Promise<void> {
  await runMigrations(client as PoolClient, QUEUE_SCHEMA);
  await keepOrder(client);
  await vacuumOften(client);
}

/** Whether the schema of the queue exists. */
export async function hasQueueTables(pool: Pool): Promise<boolean> {
  const { rows } = await pool.query<{ found: boolean }>('select to_regnamespace($1) is not null as found', [
    QUEUE_SCHEMA,
  ]);
  return rows[0]!.found;
}
