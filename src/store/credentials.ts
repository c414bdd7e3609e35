import { createHash, randomBytes } from 'node:crypto';
import { nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { type Actor, auditIn } from './audit.ts';
import type { Database, Pool } from './database.ts';
import { isDistributed } from './distributed.ts';
import type { Channel } from './subscription-states.ts';

interface ApiKeySecret {
  /** Value that the client sends: `pk_` and 32 random bytes in base64url. Shown once and not stored. */
  secret: string;
  /** First 8 characters of the secret, by which users can identify the key. */
  identifier: string;
  /** `hashApiKey(secret)`, the only stored form. */
  hash: Buffer;
}

/** Creates a new random key. It is valid once its hash is stored. */
export function newApiKey(): ApiKeySecret {
  return describeApiKey(`pk_${randomBytes(32).toString('base64url')}`);
}

/** Returns the stored forms of a chosen key, for example `BOOTSTRAP_API_KEY`. */
export function describeApiKey(secret: string): ApiKeySecret {
  return { secret, identifier: secret.slice(0, 8), hash: hashApiKey(secret) };
}

/** Returns the SHA-256 digest (32 bytes): sufficient for a secret of 256 random bits, and fast to look up. */
export function hashApiKey(secret: string): Buffer {
  return createHash('sha256').update(secret, 'utf8').digest();
}

/**
 * Number of characters of a token, including its prefix, that identify it. For a short token, half of its
 * characters.
 */
const IDENTIFIER = 11;

/**
 * Creates a new random token: `scim_` and 32 random bytes in base64url. It is valid once its hash is stored.
 */
export function newScimToken(): ApiKeySecret {
  return describeScimToken(`scim_${randomBytes(32).toString('base64url')}`);
}

/** Returns the stored forms of a chosen token, for example `BOOTSTRAP_SCIM_TOKEN`. */
export function describeScimToken(secret: string): ApiKeySecret {
  return {
    secret,
    identifier: secret.slice(0, Math.min(IDENTIFIER, Math.floor(secret.length / 2))),
    hash: hashApiKey(secret),
  };
}

/** Lifetime of an invitation in milliseconds: three days. */
const LIFETIME = 3 * 86_400_000;

interface Invitation {
  /** 32 random bytes in base64url. Part of the link and not stored. */
  secret: string;
  hash: Uint8Array<ArrayBuffer>;
  expiresAt: Date;
}

export function newInvitation(now: Date): Invitation {
  const secret = randomBytes(32).toString('base64url');
  return {
    secret,
    hash: new Uint8Array(hashApiKey(secret)),
    expiresAt: new Date(now.getTime() + LIFETIME),
  };
}

export interface ApiKeyRow {
  id: string;
  workspaceId: string;
  permissions: string[];
  ipAllowlist: string[];
  /** Channels of the workspace's subscription groups by group id, including archived groups. */
  groups: Record<string, Channel>;
  /** External ids of the workspace whose objects are rejected, up to `MAX_BLOCKED`. */
  blocked: string[];
  /** Rate limits of this workspace that differ from the defaults, by bucket. */
  limits: Record<string, { requests: number; windowSeconds: number }>;
}

/** Reads by the unique index on key_hash, with one lookup per key. Revoked keys are not found. */
const keysStatement = (blocked: string) => `
  select
    wanted.place::integer,
    api_keys.id,
    api_keys.workspace_id as "workspaceId",
    array_to_json(api_keys.permissions) as permissions,
    array_to_json(api_keys.ip_allowlist) as "ipAllowlist",
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
    ${blocked} as blocked
  from unnest($1::bytea[]) with ordinality as wanted (key_hash, place)
  cross join lateral (
    select api_keys.*
    from api_keys
    where api_keys.key_hash = wanted.key_hash
      and api_keys.revoked_at is null
    limit 1
  ) as api_keys`;

const findApiKeysStatement = keysStatement(`coalesce((
      select json_agg(blocked_external_ids.external_id)
      from blocked_external_ids
      where blocked_external_ids.workspace_id = api_keys.workspace_id
        and blocked_external_ids.unblocked_at is null
    ), '[]')`);

/** Variant for a distributed Postgres, where blocked ids are on other nodes than the keys. */
const findApiKeysDistributedStatement = keysStatement("'[]'::json");
const findBlockedStatement = `
  select blocked_external_ids.workspace_id as "workspaceId", json_agg(blocked_external_ids.external_id) as blocked
  from blocked_external_ids
  where blocked_external_ids.workspace_id = any($1::uuid[]) and blocked_external_ids.unblocked_at is null
  group by blocked_external_ids.workspace_id`;

async function findBlocked(pool: Pool, workspaceIds: string[]): Promise<Map<string, string[]>> {
  const { rows } = await pool.query<Pick<ApiKeyRow, 'workspaceId' | 'blocked'>>(findBlockedStatement, [
    workspaceIds,
  ]);
  return new Map(rows.map(({ workspaceId, blocked }) => [workspaceId, blocked]));
}

/** Returns the row of each key, in order; undefined for an unknown key. */
export async function findApiKeys(pool: Pool, hashes: Buffer[]): Promise<(ApiKeyRow | undefined)[]> {
  const distributed = await isDistributed(pool);
  const { rows } = await pool.query<ApiKeyRow & { place: number }>({
    name: distributed ? 'find-api-keys-apart' : 'find-api-keys',
    text: distributed ? findApiKeysDistributedStatement : findApiKeysStatement,
    values: [hashes],
  });
  if (distributed && rows.length > 0) {
    const blocked = await findBlocked(pool, [...new Set(rows.map(({ workspaceId }) => workspaceId))]);
    for (const row of rows) row.blocked = blocked.get(row.workspaceId) ?? [];
  }
  const apiKeys: (ApiKeyRow | undefined)[] = hashes.map(() => undefined);
  for (const { place: ordinal, ...row } of rows) apiKeys[ordinal - 1] = row;
  return apiKeys;
}

/** Updates by primary key. The array is sorted, so that two web processes lock the rows in the same order. */
const touchApiKeysStatement = `
  update api_keys
  set last_seen_at = seen.at
  from unnest($1::uuid[], $2::timestamptz[]) as seen (id, at)
  where api_keys.id = seen.id
    and (api_keys.last_seen_at is null or api_keys.last_seen_at < seen.at)`;

/** Records when keys were last used. */
export async function touchApiKeys(pool: Pool, seen: Map<string, Date>): Promise<void> {
  const ids = [...seen.keys()].sort();
  await pool.query({
    name: 'touch-api-keys',
    text: touchApiKeysStatement,
    values: [ids, ids.map((id) => seen.get(id))],
  });
}

interface ScimTokenRow {
  id: string;
  companyId: string;
  origin: string;
  ipAllowlist: string[];
  lastSeenAt: Date | null;
  /** Rate limits of this company that differ from the defaults, by bucket. */
  limits: Record<string, { requests: number; windowSeconds: number }>;
}

/**
 * Reads by the unique index on token_hash. Revoked tokens are not found. Limits are set for workspaces: the
 * company's limit is the largest SCIM limit of its workspaces.
 */
const findScimTokenStatement = `
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
    text: findScimTokenStatement,
    values: [hash],
  });
  return rows[0];
}

/** Updates by primary key. */
const touchScimTokenStatement = `
  update scim_tokens
  set last_seen_at = greatest(scim_tokens.last_seen_at, $2::timestamptz)
  where scim_tokens.id = $1::uuid`;

/** Records when a token was last used. */
export async function touchScimToken(pool: Pool, id: string, at: Date): Promise<void> {
  await pool.query({ name: 'touch-scim-token', text: touchScimTokenStatement, values: [id, at] });
}

/** Key of an account, with its company. */
interface AccountKey {
  id: string;
  companyId: string;
}

/**
 * Invites an account to set a password. An earlier invitation becomes invalid.
 *
 * @returns the secret of the link, which is not stored; undefined if the account was deleted or is inactive
 */
export async function inviteAccount(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, companyId }: AccountKey,
): Promise<{ secret: string; expiresAt: Date } | undefined> {
  const { secret, hash, expiresAt } = newInvitation(nowDate());
  return prisma.$transaction(async (tx) => {
    const { count } = await tx.account.updateMany({
      where: { id, companyId, active: true },
      data: { invitationHash: hash, invitationExpiresAt: expiresAt },
    });
    if (count === 0) return undefined;
    const subject = { kind: 'account', id };
    const detail = { expires_at: expiresAt.toISOString() };
    await auditIn(tx, actor, [{ action: 'invitations.create', subject, companyId, detail }]);
    return { secret, expiresAt };
  });
}

/** An account that an administrator of the company creates by its address. */
interface NewAccount {
  companyId: string;
  /** As the administrator wrote it. */
  userName: string;
  /** Lower-case form of the user name. Unique in the company. */
  email: string;
  givenName: string;
  familyName: string;
  /** Permissions in a workspace, with the name of the role for the audit; absent for none. */
  grant?: { workspace: string; role: string; permissions: string[] };
}

/**
 * Creates an account and invites it. Without a grant, it has no permissions.
 * @returns the id of the account and the secret of the link, which is not stored
 * @throws P2002 if the company has an account with this address
 */
export async function createInvitedAccount(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { companyId, grant, ...names }: NewAccount,
): Promise<{ id: string; secret: string; expiresAt: Date }> {
  const { secret, hash, expiresAt } = newInvitation(nowDate());
  const id = newId();
  const subject = { kind: 'account', id };
  return prisma.$transaction(async (tx) => {
    await tx.account.create({
      data: {
        ...{ id, companyId, ...names, department: '', invitationHash: hash, invitationExpiresAt: expiresAt },
        ...(grant && {
          appGroups: [{ workspace: grant.workspace, permissions: grant.permissions, teams: [] }],
        }),
      },
    });
    await auditIn(tx, actor, [
      {
        ...{ action: 'accounts.create', subject, companyId },
        detail: { active: true, ...(grant && { role: grant.role, workspace: grant.workspace }) },
      },
      { action: 'invitations.create', subject, companyId, detail: { expires_at: expiresAt.toISOString() } },
    ]);
    return { id, secret, expiresAt };
  });
}

/** Revokes an invitation that was not accepted. @returns whether there was one */
export async function revokeInvitation(
  { prisma }: Pick<Database, 'prisma'>,
  actor: Actor,
  { id, companyId }: AccountKey,
): Promise<boolean> {
  return prisma.$transaction(async (tx) => {
    const { count } = await tx.account.updateMany({
      where: { id, companyId, invitationHash: { not: null } },
      data: { invitationHash: null, invitationExpiresAt: null },
    });
    if (count === 0) return false;
    const subject = { kind: 'account', id };
    await auditIn(tx, actor, [{ action: 'invitations.revoke', subject, companyId }]);
    return true;
  });
}
