import type { Pool } from '../database.ts';

export interface ScimTokenRow {
  id: string;
  companyId: string;
  origin: string;
  ipAllowlist: string[];
  lastSeenAt: Date | null;
  /** Overrides of this company, by bucket. */
  limits: Record<string, { requests: number; windowSeconds: number }>;
}

/**
 * By the unique index on token_hash. A revoked token is not found. Limits are given to workspaces: the largest
 * that a workspace of the company has for SCIM is the company's.
 */
const statement = `
  select
    scim_tokens.id,
    scim_tokens.company_id as "companyId",
    scim_tokens.origin,
    scim_tokens.ip_allowlist as "ipAllowlist",
    scim_tokens.last_seen_at as "lastSeenAt",
    coalesce((
      select jsonb_build_object(
        rate_limits.bucket,
        jsonb_build_object('requests', rate_limits.requests, 'windowSeconds', rate_limits.window_seconds))
      from rate_limits
      join workspaces on workspaces.id = rate_limits.workspace_id
      where workspaces.company_id = scim_tokens.company_id
        and rate_limits.bucket = 'scim'
      order by rate_limits.requests::double precision / rate_limits.window_seconds desc
      limit 1
    ), '{}') as limits
  from scim_tokens
  where scim_tokens.token_hash = $1::bytea
    and scim_tokens.revoked_at is null`;

export async function findScimToken(pool: Pool, hash: Buffer): Promise<ScimTokenRow | undefined> {
  const { rows } = await pool.query<ScimTokenRow>({
    name: 'find-scim-token',
    text: statement,
    values: [hash],
  });
  return rows[0];
}
