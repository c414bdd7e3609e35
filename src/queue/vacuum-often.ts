import type { ClientBase } from 'pg';
import { QUEUE_SCHEMA } from './connection.ts';

/**
 * Each job leaves four dead rows in a table of a few dozen live ones, and every look at the queue walks past them:
 * after a minute at full load a count of what waits took 60 ms. A fifth of a table, Postgres's measure, says nothing
 * here; a thousand rows are a few seconds. What is to be read is in memory, so that vacuum need not pause.
 */
const statement = `
alter table ${QUEUE_SCHEMA}.job set (
  autovacuum_vacuum_scale_factor = 0,
  autovacuum_vacuum_threshold = 1000,
  autovacuum_vacuum_cost_delay = 0
)`;

/** Looked up first: the change would wait for a vacuum that is at work. */
const findSetting = `
select from pg_class
 where oid = '${QUEUE_SCHEMA}.job'::regclass
   and 'autovacuum_vacuum_threshold=1000' = any (reloptions)`;

/** Has the jobs' table vacuumed as soon as the server looks at it. Needs BullMQ's tables; safe to repeat. */
export async function vacuumOften(client: ClientBase): Promise<void> {
  const { rowCount } = await client.query(findSetting);
  if (!rowCount) await client.query(statement);
}
