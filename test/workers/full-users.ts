import type pg from 'pg';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Json } from '../../src/profile/json.ts';
import { attributes, makeTriggers } from './batch.ts';

/** Nearly as much as the custom attributes of one user may take. */
export const FULL: Record<string, Json> = Object.fromEntries(
  Array.from({ length: 900 }, (_, index) => [`text${index}`, 'x'.repeat(250)]),
);

/**
 * Makes users `full-1`, `full-2` … of whom each has as much as a user may have.
 *
 * @param milliseconds that each change of one of them takes
 */
export async function growFullUsers(
  pool: pg.Pool,
  workspaceId: string,
  { count, milliseconds }: { count: number; milliseconds: number },
): Promise<void> {
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, custom_attributes, created_at, updated_at)
     select $1, gen_random_uuid(), 'full-' || n, $2, now(), now() from generate_series(1, $3::integer) as n`,
    [workspaceId, FULL, count],
  );
  await makeTriggers(pool, [
    `create or replace function take_time() returns trigger language plpgsql as $$
    begin
      perform pg_sleep(${milliseconds / 1000});
      return new;
    end $$`,
    'drop trigger if exists take_time on profiles',
    `create trigger take_time before update on profiles
      for each row when (new.workspace_id = '${workspaceId}') execute function take_time()`,
  ]);
}

/** A small change of each of them. */
export function changesOfFull(count: number): AcceptedObject[] {
  return Array.from({ length: count }, (_, index) =>
    attributes(`full-${index + 1}`, { set: { seen: index } }),
  );
}

/** How many of them are changed. */
export async function countChanged(pool: pg.Pool, workspaceId: string): Promise<number> {
  const { rows } = await pool.query(
    `select count(*)::integer as count from profiles where workspace_id = $1 and custom_attributes ? 'seen'`,
    [workspaceId],
  );
  return rows[0].count;
}
