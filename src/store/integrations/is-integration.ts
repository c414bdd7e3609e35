import type { Pool } from '../database.ts';

/** By primary key. */
const statement = `
  select from integrations
  where integrations.id = $1::uuid
    and integrations.workspace_id = $2::uuid`;

/** Whether the workspace has the integration. */
export async function isIntegration(pool: Pool, id: string, workspaceId: string): Promise<boolean> {
  const { rowCount } = await pool.query({
    name: 'is-integration',
    text: statement,
    values: [id, workspaceId],
  });
  return rowCount === 1;
}
