import { nextRun } from '../integrations/schedule.ts';
import { type ListedIntegration, listIntegrations } from '../store/integrations.ts';
import { cursorQuery, EXAMPLE_INTEGRATION, integrationsReply, linkTo, readPage } from './cdi/schemas.ts';
import type { DirectOperation } from './operation.ts';

const PATH = '/cdi/integrations';

/** GET /cdi/integrations */
export function cdiIntegrations(): DirectOperation {
  return {
    kind: 'direct',
    id: 'cdi.integrations',
    method: 'GET',
    path: PATH,
    permission: 'cdi.integration_list',
    bucket: 'cdi.integration_list',
    summary: 'List the warehouse integrations of the workspace',
    description:
      'Ten per page, newest first. The `Link` header has the relative URLs of the previous and the next page. It is absent if there is one page. To create integrations, use `penstock integrations create`.',
    query: cursorQuery,
    replies: { 200: { description: 'The integrations.', schema: integrationsReply } },
    refusals: ['invalidCursor'],
    example: {
      query: {},
      reply: {
        results: [
          {
            integration_id: EXAMPLE_INTEGRATION,
            app_group_id: '019c13ec-a2e2-7d0b-b0f1-4c5a8d6e2f10',
            integration_name: 'users',
            integration_type: 'attributes',
            integration_status: 'active',
            contact_emails: 'ada@example.com',
            last_updated_at: '2026-01-31T11:58:03.120000Z',
            warehouse_type: 'postgres',
            last_job_start_time: '2026-01-31T12:00:00.031Z',
            last_job_status: 'success',
            next_scheduled_run: '2026-01-31T12:15:00.000Z',
          },
        ],
        message: 'success',
      },
    },

    async handle({ workspaceId, now }, { query }, { database }) {
      const list = `${PATH} ${workspaceId}`;
      const page = await listIntegrations(database.pool, workspaceId, readPage(query, list));
      const results = page.rows.map((row) => ({
        integration_id: row.id,
        app_group_id: workspaceId,
        integration_name: row.name,
        // The vendor's name for this kind.
        integration_type: row.kind === 'deletes' ? 'user_deletes' : row.kind,
        integration_status: row.status,
        contact_emails: row.contactEmails,
        last_updated_at: row.lastTimestamp,
        warehouse_type: row.warehouseType,
        last_job_start_time: row.lastStartedAt,
        last_job_status: row.lastStatus,
        next_scheduled_run: nextRunOf(row, now),
      }));
      return { status: 200, body: { results, message: 'success' }, headers: linkTo(PATH, list, page) };
    },
  };
}

function nextRunOf({ status, schedule }: ListedIntegration, now: number): string | null {
  if (status !== 'active' || schedule === null) return null;
  return nextRun(schedule, new Date(now)).toISOString();
}
