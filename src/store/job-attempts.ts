import type { Pool } from './database.ts';

/** Kinds of jobs that a sync process works on. */
export type JobKind = 'sync run' | 'segment export' | 'export callback' | 'stream delivery' | 'retention';

export interface JobName {
  kind: JobKind;
  /** A UUID. */
  id: string;
}

/** Lets a statement return before the disk: an attempt must outlive its process, but not a crash of Postgres. */
const unhurried = `(select set_config('synchronous_commit', 'off', true)) as unhurried`;

/** By primary key. */
const countStatement = `
  select count(*)::integer as count
  from job_attempts
  where job_attempts.kind = $1::text and job_attempts.job_id = $2::uuid and job_attempts.process_id <> $3::uuid`;

/** Counts attempts of other processes that were begun and not ended. */
export async function countAttempts(pool: Pool, { kind, id }: JobName, processId: string): Promise<number> {
  const values = [kind, id, processId];
  const { rows } = await pool.query<{ count: number }>({
    name: 'count-attempts',
    text: countStatement,
    values,
  });
  return rows[0]!.count;
}

const beginStatement = `
  insert into job_attempts (kind, job_id, process_id)
  select $1::text, $2::uuid, $3::uuid
  from ${unhurried}
  on conflict (kind, job_id, process_id) do update set started_at = excluded.started_at`;

/** Notes that a process begins a job. */
export async function beginAttempt(pool: Pool, { kind, id }: JobName, processId: string): Promise<void> {
  await pool.query({ name: 'begin-attempt', text: beginStatement, values: [kind, id, processId] });
}

/** By primary key. */
const endStatement = `
  delete from job_attempts
  using ${unhurried}
  where job_attempts.kind = $1::text and job_attempts.job_id = $2::uuid
    and case $4::text
      when 'own' then job_attempts.process_id = $3::uuid
      when 'others' then job_attempts.process_id <> $3::uuid
      else true
    end`;

/** Removes attempts at a job: the attempt of this process, the attempts of other processes, or all. */
export async function endAttempts(
  pool: Pool,
  { kind, id }: JobName,
  { processId, whose }: { processId: string; whose: 'own' | 'others' | 'all' },
): Promise<void> {
  await pool.query({ name: 'end-attempts', text: endStatement, values: [kind, id, processId, whose] });
}

/** Reads the whole table, which is small: attempts at jobs that were deleted stay in it. */
const forgetStatement = `
  delete from job_attempts
  where job_attempts.started_at < now() - interval '30 days'`;

/** Removes attempts that began 30 days ago. */
export async function forgetAttempts(pool: Pool): Promise<void> {
  await pool.query(forgetStatement);
}
