import type { Pool } from '../database.ts';

/** Copies the integration's rows of the boundary, by the first column of its primary key. */
const statement = `
  with expected as (
    insert into sync_expected (attempt, fingerprint, job_id, remaining)
    select $1::uuid, sync_boundary.fingerprint, $2::uuid, sync_boundary.seen
    from sync_boundary
    where sync_boundary.integration_id = $3::uuid
    returning sync_expected.remaining
  )
  select coalesce(sum(expected.remaining), 0)::float8 as rows from expected`;

/**
 * Notes for one attempt which rows it will meet that have been processed before.
 * @returns how many there are
 */
export async function expectBoundary(
  pool: Pool,
  { attempt, jobId, integrationId }: { attempt: string; jobId: string; integrationId: string },
): Promise<number> {
  const { rows } = await pool.query<{ rows: number }>({
    name: 'expect-boundary',
    text: statement,
    values: [attempt, jobId, integrationId],
  });
  return rows[0]!.rows;
}
