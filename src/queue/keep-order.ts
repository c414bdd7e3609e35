import type { ClientBase } from 'pg';
import { QUEUE_SCHEMA } from './connection.ts';
import { orderFences } from './order-fences.ts';

/**
 * BullMQ's Postgres backend hands out waiting jobs by `seq`. When the worker of an active job goes silent,
 * `move_stalled_jobs_to_wait` sets the job back to waiting with `seq = nextval('job_seq')`: it would go to
 * the tail, behind jobs of the same users that were accepted later (on Redis it goes to the head). With its
 * old `seq` it is the smallest of its lane again, since a lane has one job in work at a time.
 *
 * `when` is checked without a call of the function, so every other update costs next to nothing.
 */
const createFunction = `
create or replace function ${QUEUE_SCHEMA}.penstock_keep_order() returns trigger
language plpgsql as $$
begin
  new.seq := old.seq;
  return new;
end
$$`;

const createTrigger = `
create trigger penstock_keep_order before update on ${QUEUE_SCHEMA}.job
for each row when (old.state = 'active' and new.state = 'waiting')
execute function ${QUEUE_SCHEMA}.penstock_keep_order()`;

/** Looked up first: creating a trigger would wait for every transaction that writes to the table. */
const findTrigger = `
select from pg_trigger
 where tgname = 'penstock_keep_order' and tgrelid = '${QUEUE_SCHEMA}.job'::regclass`;

/**
 * Lets a job that goes back from active to waiting keep its place, and all fences stand in one order in every lane.
 * Needs BullMQ's tables; safe to repeat.
 */
export async function keepOrder(client: ClientBase): Promise<void> {
  await client.query(createFunction);
  const { rowCount } = await client.query(findTrigger);
  if (!rowCount) await client.query(createTrigger);
  await orderFences(client);
}
