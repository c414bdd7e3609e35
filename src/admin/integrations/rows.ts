import type { SourceDefinition } from '../../integrations/definition.ts';
import { nextRun } from '../../integrations/schedule.ts';
import type { SelectedIntegration } from '../../store/integrations/select-integrations.ts';
import type { SelectedRun } from '../../store/syncs/select-runs.ts';
import type { Row } from '../output.ts';

/** One line of a list. */
export function shortRow(integration: SelectedIntegration): Row {
  return {
    integration_id: integration.id,
    workspace: integration.workspace,
    name: integration.name,
    kind: integration.kind,
    source: whereIs(sourceOf(integration)),
    status: integration.status,
    schedule: integration.schedule,
    last_timestamp: integration.last_timestamp,
    last_job_status: integration.last_job_status,
  };
}

/** Everything but the credentials. */
export function longRow(integration: SelectedIntegration, now: Date): Row {
  const { status, schedule } = integration;
  return {
    integration_id: integration.id,
    workspace: integration.workspace,
    name: integration.name,
    kind: integration.kind,
    status,
    warehouse_type: integration.warehouse_type,
    source: integration.source,
    schedule,
    next_scheduled_run:
      status === 'active' && schedule !== null ? nextRun(schedule, now).toISOString() : null,
    contact_emails: integration.contact_emails,
    update_existing_only: integration.update_existing_only,
    last_timestamp: integration.last_timestamp,
    last_job_started_at: integration.last_job_started_at,
    last_job_status: integration.last_job_status,
    created_at: integration.created_at,
  };
}

export function runRow({ id, ...run }: SelectedRun): Row {
  return { job_id: id, ...run };
}

export function sourceOf({ source }: Pick<SelectedIntegration, 'source'>): SourceDefinition {
  return source as unknown as SourceDefinition;
}

/** As a person would name it. */
export function whereIs(source: SourceDefinition): string {
  if (source.type === 'postgres') return `${source.host}:${source.port}/${source.database} ${source.table}`;
  if (source.type === 'folder') return `${source.path} (${source.format})`;
  return `s3://${source.bucket}/${source.prefix} (${source.format})`;
}
