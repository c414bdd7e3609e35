import type { ClientBase } from 'pg';
import { jobs } from '../jobs/catalog.ts';
import { QUEUE_SCHEMA } from './connection.ts';

/** Both halves of the advisory lock's key: "pstk", then "fnce" in ASCII, which is no lane's lease. */
const LOCK = [0x7073746b, 0x666e6365].join(', ');

/**
 * BullMQ's Postgres backend hands out waiting jobs by `seq`, which an add takes long before it commits. Two adds at
 * once could take theirs crosswise, the one before the other in one lane and behind it in another: two fences that
 * wait for each other for ever. So an add that holds a fence waits here until no other is on its way, and takes
 * its `seq` only then; every fence is in all its lanes before the next one has a number.
 *
 * The lock ends with the transaction. `when` is checked without a call of the function, so that other jobs cost
 * next to nothing.
 */
const createFunction = `
create or replace function ${QUEUE_SCHEMA}.penstock_order_fences() returns trigger
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(${LOCK});
  new.seq := nextval('${QUEUE_SCHEMA}.job_seq');
  return new;
end
$$`;

const createTrigger = `
create trigger penstock_order_fences before insert on ${QUEUE_SCHEMA}.job
for each row when (new.name = '${jobs.fence}')
execute function ${QUEUE_SCHEMA}.penstock_order_fences()`;

/** Looked up first: creating a trigger would wait for every transaction that writes to the table. */
const findTrigger = `
select from pg_trigger
 where tgname = 'penstock_order_fences' and tgrelid = '${QUEUE_SCHEMA}.job'::regclass`;

/** Lets all fences stand in one order in every lane. Needs BullMQ's tables; safe to repeat. */
export async function orderFences(client: ClientBase): Promise<void> {
  await client.query(createFunction);
  const { rowCount } = await client.query(findTrigger);
  if (!rowCount) await client.query(createTrigger);
}
