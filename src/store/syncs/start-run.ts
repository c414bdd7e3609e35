import type { Pool } from '../database.ts';

export type AskedBy = 'schedule' | 'api' | 'operator';

/** `in progress`: another run has not ended; `not active`: a draft or paused; `unknown`: there is no such integration. */
export type StartedRun = 'started' | 'in progress' | 'not active' | 'unknown';

/** The unique index sync_jobs_running admits one run of an integration that has not ended. */
const statement = `
  with integration as (
    select integrations.id, integrations.status
    from integrations
    where integrations.id = $2::uuid),
  started as (
    insert into sync_jobs (id, integration_id, asked_by)
    select $1::uuid, integration.id, $3
    from integration
    where integration.status = 'active'
    on conflict (integration_id) where finished_at is null do nothing
    returning sync_jobs.id)
  select
    case
      when exists (select from started) then 'started'
      when integration.status = 'active' then 'in progress'
      else 'not active'
    end as outcome
  from integration`;

/**
 * Begins a run of an active integration that has none: from then on it is worked, whether the queue learns of it now
 * or later.
 *
 * @param id UUIDv7 that the run shall have
 */
export async function startRun(
  pool: Pool,
  { id, integrationId, askedBy }: { id: string; integrationId: string; askedBy: AskedBy },
): Promise<StartedRun> {
  const { rows } = await pool.query<{ outcome: StartedRun }>({
    name: 'start-run',
    text: statement,
    values: [id, integrationId, askedBy],
  });
  return rows[0]?.outcome ?? 'unknown';
}
