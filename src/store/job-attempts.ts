import type { Pool } from './database.ts';

/** Kinds of jobs that a sync process works on. */
export type SyncJobKind = 'sync run' | 'segment export' | 'export callback' | 'stream delivery' | 'retention';

/** Kinds of work that a process begins and ends. Envelopes and objects are processed by workers. */
type WorkKind = SyncJobKind | 'envelope' | 'object';

/** Jobs, envelopes or objects of one kind. */
export interface NamedWork {
  kind: WorkKind;
  /** UUIDs. */
  ids: readonly string[];
}

/** Returns before the data is on disk: an attempt must survive its process, but not a crash of Postgres. */
const unhurried = `(select set_config('synchronous_commit', 'off', true)) as unhurried`;

/** Reads by primary key. */
const countStatement = `
  select job_attempts.job_id as id, count(*)::integer as count
  from job_attempts
  where job_attempts.kind = $1::text and job_attempts.job_id = any ($2::uuid[])
    and job_attempts.process_id <> $3::uuid
  group by job_attempts.job_id`;

/**
 * Number of attempts of other processes that have begun and not ended, by id. Ids without such attempts are
 * omitted.
 */
export type EndedAttempts = ReadonlyMap<string, number>;

/** Counts attempts of other processes that were begun and not ended. */
export async function countAttempts(
  pool: Pool,
  { kind, ids }: NamedWork,
  processId: string,
): Promise<EndedAttempts> {
  const values = [kind, ids, processId];
  const { rows } = await pool.query<Counted>({ name: 'count-attempts', text: countStatement, values });
  return toEnded(rows);
}

interface Counted {
  id: string;
  count: number;
}

function toEnded(rows: Counted[]): EndedAttempts {
  return new Map(rows.map(({ id, count }) => [id, count]));
}

/** Inserts by primary key. */
const beginStatement = `
  with begun as (
    insert into job_attempts (kind, job_id, process_id)
    select $1::text, given.id, $3::uuid
    from ${unhurried}, unnest($2::uuid[]) as given (id)
    on conflict (kind, job_id, process_id) do update set started_at = excluded.started_at
  )
  ${countStatement}`;

/** Records that a process begins attempts, and counts attempts of other processes like `countAttempts`. */
export async function beginAttempts(
  pool: Pool,
  { kind, ids }: NamedWork,
  processId: string,
): Promise<EndedAttempts> {
  const values = [kind, ids, processId];
  const { rows } = await pool.query<Counted>({ name: 'begin-attempts', text: beginStatement, values });
  return toEnded(rows);
}

/** Deletes by primary key. */
const endStatement = `
  delete from job_attempts
  using ${unhurried}
  where job_attempts.kind = $1::text and job_attempts.job_id = any ($2::uuid[])
    and case $4::text
      when 'own' then job_attempts.process_id = $3::uuid
      when 'others' then job_attempts.process_id <> $3::uuid
      else true
    end`;

/** Removes the attempts of this process, the attempts of other processes, or all. */
export async function endAttempts(
  pool: Pool,
  { kind, ids }: NamedWork,
  { processId, whose }: { processId: string; whose: 'own' | 'others' | 'all' },
): Promise<void> {
  await pool.query({ name: 'end-attempts', text: endStatement, values: [kind, ids, processId, whose] });
}

/** Scans the table, which is small. It also has attempts at jobs that were deleted. */
const forgetStatement = `
  delete from job_attempts
  where job_attempts.started_at < now() - interval '30 days'`;

/** Removes attempts that began 30 days ago. */
export async function forgetAttempts(pool: Pool): Promise<void> {
  await pool.query(forgetStatement);
}
