import { listRuns } from '../store/sync-lists.ts';
import {
  cursorQuery,
  EXAMPLE_INTEGRATION,
  integrationIn,
  jobsReply,
  linkTo,
  readPage,
} from './cdi/schemas.ts';
import type { DirectOperation } from './operation.ts';

/** GET /cdi/integrations/{integration_id}/job_sync_status */
export function cdiJobSyncStatus(): DirectOperation {
  return {
    kind: 'direct',
    id: 'cdi.job_sync_status',
    method: 'GET',
    path: '/cdi/integrations/:integration_id/job_sync_status',
    permission: 'cdi.integration_job_status',
    bucket: 'cdi.integration_job_status',
    summary: 'List the sync jobs of a warehouse integration',
    description:
      'Ten per page, newest first. Jobs are kept for twelve months. The `Link` header has the relative URLs of the previous and the next page. It is absent if there is one page. New jobs do not shift the pages.',
    query: cursorQuery,
    replies: { 200: { description: 'The jobs.', schema: jobsReply } },
    refusals: ['invalidCursor', 'invalidIntegrationId', 'unknownIntegration'],
    example: {
      params: { integration_id: EXAMPLE_INTEGRATION },
      query: {},
      reply: {
        results: [
          {
            job_status: 'partial',
            sync_start_time: '2026-01-31T12:00:00.031Z',
            sync_finish_time: '2026-01-31T12:00:04.518Z',
            last_timestamp_synced: '2026-01-31T11:58:03.120000Z',
            rows_synced: 1830,
            rows_failed_with_errors: 2,
          },
        ],
        message: 'success',
      },
    },

    async handle({ workspaceId }, { params, query }, { database }) {
      const id = await integrationIn(params, workspaceId, database);
      const path = `/cdi/integrations/${id}/job_sync_status`;
      const page = await listRuns(database.pool, id, readPage(query, path));
      const results = page.rows.map((row) => ({
        job_status: row.status,
        sync_start_time: row.startedAt,
        sync_finish_time: row.finishedAt,
        last_timestamp_synced: row.lastTimestamp,
        rows_synced: row.rowsSynced,
        rows_failed_with_errors: row.rowsFailed,
      }));
      return { status: 200, body: { results, message: 'success' }, headers: linkTo(path, path, page) };
    },
  };
}
