import type { Connection, Pool } from './database.ts';

/** Upserts by primary key, in the order of it. */
const addToBoundaryStatement = `
  insert into sync_boundary (integration_id, fingerprint, seen, unreadable)
  select $1::uuid, decode(met.fingerprint, 'hex'), met.seen, $4::boolean
  from unnest($2::text[], $3::integer[]) as met (fingerprint, seen)
  order by met.fingerprint
  on conflict (integration_id, fingerprint) do update set seen = sync_boundary.seen + excluded.seen`;

/**
 * Remembers rows that have been processed.
 * @param rows how many equal ones, by fingerprint in hex
 */
export async function addToBoundary(
  tx: Connection,
  integrationId: string,
  { rows, unreadable }: { rows: Record<string, number>; unreadable: boolean },
): Promise<void> {
  await tx.query({
    name: 'add-to-boundary',
    text: addToBoundaryStatement,
    values: [integrationId, Object.keys(rows), Object.values(rows), unreadable],
  });
}

/** By the first column of the primary key. */
const clearBoundaryStatement = `
  delete from sync_boundary
  where sync_boundary.integration_id = $1::uuid
    and sync_boundary.unreadable = $2::boolean`;

/**
 * Forgets which rows were processed.
 * @param unreadable those without a readable time; otherwise those of the integration's watermark
 */
export async function clearBoundary(
  tx: Connection,
  integrationId: string,
  unreadable: boolean,
): Promise<void> {
  await tx.query({
    name: 'clear-boundary',
    text: clearBoundaryStatement,
    values: [integrationId, unreadable],
  });
}

/** Copies the integration's rows of the boundary, by the first column of its primary key. */
const expectBoundaryStatement = `
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
    text: expectBoundaryStatement,
    values: [attempt, jobId, integrationId],
  });
  return rows[0]!.rows;
}

/** By primary key. One process reads in an attempt, one batch after the other: no two count the same row down. */
const meetBoundaryStatement = `
  with met as (
    select sync_expected.fingerprint, least(sync_expected.remaining, asked.rows) as rows
    from unnest($2::text[], $3::integer[]) as asked (fingerprint, rows)
    join sync_expected
      on sync_expected.attempt = $1::uuid
      and sync_expected.fingerprint = decode(asked.fingerprint, 'hex')
    where sync_expected.remaining > 0
  ), counted as (
    update sync_expected
    set remaining = sync_expected.remaining - met.rows
    from met
    where sync_expected.attempt = $1::uuid
      and sync_expected.fingerprint = met.fingerprint
  )
  select encode(met.fingerprint, 'hex') as fingerprint, met.rows from met`;

/**
 * Of rows that an attempt has read, how many of each have been processed before; these it has met then.
 * @param rows how many equal ones, by fingerprint in hex
 */
export async function meetBoundary(
  pool: Pool,
  attempt: string,
  rows: ReadonlyMap<string, number>,
): Promise<Map<string, number>> {
  const { rows: met } = await pool.query<{ fingerprint: string; rows: number }>({
    name: 'meet-boundary',
    text: meetBoundaryStatement,
    values: [attempt, [...rows.keys()], [...rows.values()]],
  });
  return new Map(met.map(({ fingerprint, rows }) => [fingerprint, rows]));
}

/** By the first column of the primary key. */
const forgetExpectedStatement = 'delete from sync_expected where sync_expected.attempt = $1::uuid';

/** Forgets what an attempt has noted, which reads no more. That of another attempt at the same run is not its own. */
export async function forgetExpected(pool: Pool, attempt: string): Promise<void> {
  await pool.query({ name: 'forget-expected', text: forgetExpectedStatement, values: [attempt] });
}

/**
 * By the index sync_expected_job, from one run to the next: an attempt under way may have a million rows, and none of
 * them is read.
 */
const forgetEndedExpectedStatement = `
  with recursive runs (id) as (
    (select sync_expected.job_id from sync_expected order by sync_expected.job_id limit 1)
    union all
    select (
      select sync_expected.job_id
      from sync_expected
      where sync_expected.job_id > runs.id
      order by sync_expected.job_id
      limit 1)
    from runs
    where runs.id is not null
  ), ended as materialized (
    select sync_jobs.id
    from runs
    join sync_jobs on sync_jobs.id = runs.id
    where sync_jobs.finished_at is not null
  )
  delete from sync_expected
  using ended
  where sync_expected.job_id = ended.id`;

/** Forgets what attempts have noted whose run is over. */
export async function forgetEndedExpected(pool: Pool): Promise<void> {
  await pool.query(forgetEndedExpectedStatement);
}
