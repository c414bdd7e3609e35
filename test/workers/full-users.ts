import type pg from 'pg';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Json } from '../../src/profile/json.ts';
import { attributes, makeTriggers } from './batch.ts';

/** Custom attributes close to the size limit of one user. */
export const FULL: Record<string, Json> = Object.fromEntries(
  Array.from({ length: 900 }, (_, index) => [`text${index}`, 'x'.repeat(250)]),
);

/**
 * Creates users `full-1`, `full-2` …, each with custom attributes close to the size limit.
 *
 * @param milliseconds duration of each update of such a user
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

/** Returns a small change for each of these users. */
export function changesOfFull(count: number): AcceptedObject[] {
  return Array.from({ length: count }, (_, index) =>
    attributes(`full-${index + 1}`, { set: { seen: index } }),
  );
}

/** Returns the number of changed users. */
export async function countChanged(pool: pg.Pool, workspaceId: string): Promise<number> {
  const { rows } = await pool.query(
    `select count(*)::integer as count from profiles where workspace_id = $1 and custom_attributes ? 'seen'`,
    [workspaceId],
  );
  return rows[0].count;
}
