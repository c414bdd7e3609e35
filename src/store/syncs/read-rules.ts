import type { Pool } from '../database.ts';

/** What decides about the rows of a workspace beside the rows themselves. */
export interface WorkspaceRules {
  /** Ids of its subscription groups, archived ones included. */
  groups: string[];
  /** External ids whose objects are refused. */
  blocked: string[];
  /** Its own limit of /users/track, if it has one. */
  limit: { requests: number; windowSeconds: number } | null;
}

/** By the workspace's indexes. */
const statement = `
  select
    array(
      select subscription_groups.id::text
      from subscription_groups
      where subscription_groups.workspace_id = $1::uuid
    ) as groups,
    array(
      select blocked_external_ids.external_id
      from blocked_external_ids
      where blocked_external_ids.workspace_id = $1::uuid
        and blocked_external_ids.unblocked_at is null
    ) as blocked,
    (
      select jsonb_build_object('requests', rate_limits.requests, 'windowSeconds', rate_limits.window_seconds)
      from rate_limits
      where rate_limits.workspace_id = $1::uuid
        and rate_limits.bucket = 'users.track'
    ) as limit`;

export async function readRules(pool: Pool, workspaceId: string): Promise<WorkspaceRules> {
  const { rows } = await pool.query<WorkspaceRules>({
    name: 'read-rules',
    text: statement,
    values: [workspaceId],
  });
  return rows[0]!;
}
