import { ApiError } from '../errors.ts';
import { newId } from '../platform/ids.ts';
import { startRun } from '../store/sync-runs.ts';
import { EXAMPLE_INTEGRATION, integrationIn } from './cdi/schemas.ts';
import type { DirectOperation } from './operation.ts';

/** POST /cdi/integrations/{integration_id}/sync */
export function cdiSync(): DirectOperation {
  return {
    kind: 'direct',
    id: 'cdi.sync',
    method: 'POST',
    path: '/cdi/integrations/:integration_id/sync',
    permission: 'cdi.integration_sync',
    bucket: 'cdi.integration_sync',
    summary: 'Start a sync of a warehouse integration',
    description:
      'Starts a sync job, which the list of sync jobs shows. An integration runs one job at a time. You cannot start a job of a draft or paused integration.',
    replies: {
      202: {
        description: 'The job was started.',
        schema: { type: 'object', required: ['message'], properties: { message: { const: 'success' } } },
      },
    },
    refusals: ['invalidIntegrationId', 'integrationNotActive', 'unknownIntegration', 'syncInProgress'],
    example: { params: { integration_id: EXAMPLE_INTEGRATION }, reply: { message: 'success' } },

    async handle({ workspaceId }, { params }, { database, announceRun }) {
      const integrationId = await integrationIn(params, workspaceId, database);
      const id = newId();
      const started = await startRun(database.pool, { id, integrationId, askedBy: 'api' });
      if (started === 'in progress') throw new ApiError('syncInProgress');
      if (started === 'not active') throw new ApiError('integrationNotActive');
      // The integration was deleted after it was found.
      if (started === 'unknown') throw new ApiError('unknownIntegration');
      await announceRun(id);
      return { status: 202, body: { message: 'success' } };
    },
  };
}
