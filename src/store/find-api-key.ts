import type { Pool } from './database.ts';
import type { Channel } from './subscriptions/find-groups.ts';

export interface ApiKeyRow {
  id: string;
  workspaceId: string;
  permissions: string[];
  ipAllowlist: string[];
  /** Channels of the workspace's subscription groups by their ids, archived ones included. */
  groups: Record<string, Channel>;
  /** External ids of the workspace whose objects are refused, at most `MAX_BLOCKED`. */
  blocked: string[];
  /** Overrides of this workspace, by bucket. */
  limits: Record<string, { requests: number; windowSeconds: number }>;
}

/** By the unique index on key_hash. A revoked key is not found. */
const statement = `
  select
    api_keys.id,
    api_keys.workspace_id as "workspaceId",
    api_keys.permissions,
    api_keys.ip_allowlist as "ipAllowlist",
    coalesce((
      select jsonb_object_agg(
        rate_limits.bucket,
        jsonb_build_object('requests', rate_limits.requests, 'windowSeconds', rate_limits.window_seconds))
      from rate_limits
      where rate_limits.workspace_id = api_keys.workspace_id
    ), '{}') as limits,
    coalesce((
      select jsonb_object_agg(subscription_groups.id, subscription_groups.channel)
      from subscription_groups
      where subscription_groups.workspace_id = api_keys.workspace_id
    ), '{}') as groups,
    coalesce((
      select json_agg(blocked_external_ids.external_id)
      from blocked_external_ids
      where blocked_external_ids.workspace_id = api_keys.workspace_id
        and blocked_external_ids.unblocked_at is null
    ), '[]') as blocked
  from api_keys
  where api_keys.key_hash = $1::bytea
    and api_keys.revoked_at is null`;

export async function findApiKey(pool: Pool, hash: Buffer): Promise<ApiKeyRow | undefined> {
  const { rows } = await pool.query<ApiKeyRow>({ name: 'find-api-key', text: statement, values: [hash] });
  return rows[0];
}
