import type { Connection, Pool } from './database.ts';

/** Upserts in primary key order. */
const addToBoundaryStatement = `
  insert into sync_boundary (integration_id, fingerprint, seen, unreadable)
  select $1::uuid, decode(met.fingerprint, 'hex'), met.seen, $4::boolean
  from unnest($2::text[], $3::integer[]) as met (fingerprint, seen)
  order by met.fingerprint
  on conflict (integration_id, fingerprint) do update set seen = sync_boundary.seen + excluded.seen`;

/**
 * Records rows that were processed.
 *
 * @param rows number of equal rows by fingerprint, in hex
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

/** Deletes by the first column of the primary key. */
const clearBoundaryStatement = `
  delete from sync_boundary
  where sync_boundary.integration_id = $1::uuid
    and sync_boundary.unreadable = $2::boolean`;

/**
 * Deletes the records of processed rows.
 *
 * @param unreadable true: rows without a readable time; false: rows at the integration's watermark
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

/** Copies the integration's processed rows, by the first column of the primary key. */
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
 * Prepares an attempt: copies the processed rows that it will read again.
 *
 * @returns the number of rows
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

/**
 * Updates by primary key. One process reads an attempt batch by batch, so the same row is never counted
 * twice.
 */
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
 * Returns how many of the rows that an attempt has read were processed before, and marks them as met.
 *
 * @param rows number of equal rows by fingerprint, in hex
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

/** Deletes by the first column of the primary key. */
const forgetExpectedStatement = 'delete from sync_expected where sync_expected.attempt = $1::uuid';

/**
 * Deletes the expected rows of an attempt that has finished reading. Other attempts at the same run keep
 * theirs.
 */
export async function forgetExpected(pool: Pool, attempt: string): Promise<void> {
  await pool.query({ name: 'forget-expected', text: forgetExpectedStatement, values: [attempt] });
}

/**
 * Steps from one run to the next by the index sync_expected_job, because a running attempt may have a million
 * rows, which are not read.
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

/** Deletes the expected rows of attempts whose run has ended. */
export async function forgetEndedExpected(pool: Pool): Promise<void> {
  await pool.query(forgetEndedExpectedStatement);
}
