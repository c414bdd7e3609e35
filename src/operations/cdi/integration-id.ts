import { validate } from 'uuid';
import { ApiError } from '../../errors.ts';
import type { Pool } from '../../store/database.ts';
import { isIntegration } from '../../store/integrations/is-integration.ts';

/** The integration that the examples name. */
export const EXAMPLE_INTEGRATION = '019c13ec-a2e2-71d4-8c53-2f6be1a90c77';

/**
 * The id in a path, in lower case, of an integration that the workspace has.
 * @throws {ApiError} invalidIntegrationId, unknownIntegration
 */
export async function integrationIn(
  params: Record<string, string>,
  workspaceId: string,
  pool: Pool,
): Promise<string> {
  const { integration_id: text = '' } = params;
  if (!validate(text)) throw new ApiError('invalidIntegrationId');
  const id = text.toLowerCase();
  if (!(await isIntegration(pool, id, workspaceId))) throw new ApiError('unknownIntegration');
  return id;
}
