import type { IntegrationKind, SourceDefinition } from '../../integrations/definition.ts';
import type { Pool } from '../database.ts';

/** A run that has not ended, as far as it has come, and its integration. */
export interface Run {
  id: string;
  integrationId: string;
  workspaceId: string;
  name: string;
  kind: IntegrationKind;
  source: SourceDefinition;
  credentials: Buffer | null;
  updateExistingOnly: boolean;
  /** Of the integration: where reading begins; ISO 8601 in UTC to the microsecond. */
  lastTimestamp: string | null;
  rowsRead: number;
  rowsSynced: number;
  rowsFailed: number;
  cancelled: boolean;
}

/** By primary keys. */
const statement = `
  select
    sync_jobs.id,
    integrations.id as "integrationId",
    integrations.workspace_id as "workspaceId",
    integrations.name,
    integrations.kind,
    integrations.source,
    integrations.credentials,
    integrations.update_existing_only as "updateExistingOnly",
    to_char(integrations.last_timestamp at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') as "lastTimestamp",
    sync_jobs.rows_read as "rowsRead",
    sync_jobs.rows_synced as "rowsSynced",
    sync_jobs.rows_failed as "rowsFailed",
    sync_jobs.cancelled_at is not null as cancelled
  from sync_jobs
  join integrations on integrations.id = sync_jobs.integration_id
  where sync_jobs.id = $1::uuid
    and sync_jobs.finished_at is null`;

/** Undefined: it has ended, or is gone with its integration. */
export async function findRun(pool: Pool, id: string): Promise<Run | undefined> {
  const { rows } = await pool.query<Run>({ name: 'find-run', text: statement, values: [id] });
  return rows[0];
}
