import { randomBytes } from 'node:crypto';
import type { Database, Pool } from './database.ts';
import { withCitusForm } from './one-workspace.ts';

/**
 * Reads by the primary keys of merged_profiles and profiles. A chain of merges has no cycle, because merged
 * profiles are deleted. The limit keeps the planner from using a join.
 */
const findKeptProfileStatement = `
  with recursive kept (id, steps) as (
    select $2::uuid, 0
    union all
    select merged.kept_id, kept.steps + 1
    from kept
    cross join lateral (
      select merged_profiles.kept_id
      from merged_profiles
      where merged_profiles.workspace_id = $1::uuid
        and merged_profiles.profile_id = kept.id
      limit 1
    ) as merged
  )
  select profiles.id
  from kept
  join profiles
    on profiles.workspace_id = $1::uuid
    and profiles.id = kept.id
  order by kept.steps
  limit 1`;

/**
 * Returns the profile, or the profile that it was merged into, directly or through other merges. Undefined if
 * that profile was deleted.
 */
export async function findKeptProfile(
  pool: Pool,
  workspaceId: string,
  profileId: string,
): Promise<string | undefined> {
  const values = [workspaceId, profileId];
  const { rows } = await pool.query<{ id: string }>({
    name: 'find-kept-profile',
    text: findKeptProfileStatement,
    values,
  });
  return rows[0]?.id;
}

interface LinkUser {
  id: string;
  email: string | null;
  /** Epoch milliseconds by Postgres's clock, which dates links and their revocations. */
  now: number;
}

/**
 * Reads by the unique index profiles_external_id, then by the primary keys of deprecated_external_ids and
 * profiles.
 */
const findLinkUserStatement = withCitusForm(`
  select found.id, found.email, (extract(epoch from clock_timestamp()) * 1000)::bigint as now
  from (
    select 1 as rank, profiles.id, profiles.email
    from profiles
    where profiles.workspace_id = $1::uuid and profiles.external_id = $2::text
    union all
    select 2 as rank, profiles.id, profiles.email
    from deprecated_external_ids
    join profiles
      on profiles.workspace_id = deprecated_external_ids.workspace_id
      and profiles.id = deprecated_external_ids.profile_id
    where deprecated_external_ids.workspace_id = $1::uuid and deprecated_external_ids.external_id = $2::text
  ) as found
  order by found.rank
  limit 1`);

/** Returns the user with an external id or a deprecated external id. */
export async function findLinkUser(
  pool: Pool,
  workspaceId: string,
  externalId: string,
): Promise<LinkUser | undefined> {
  const values = [workspaceId, externalId];
  const { rows } = await pool.query<LinkUser>({
    name: 'find-link-user',
    text: findLinkUserStatement,
    values,
  });
  return rows[0];
}

/** Bytes of a key: the output size of HMAC-SHA-256. */
const KEY_BYTES = 32;

/** Returns the key that signs the workspace's links, if there is one. */
export async function findLinkKey(
  { prisma }: Database,
  workspaceId: string,
): Promise<Uint8Array | undefined> {
  const row = await prisma.preferenceLinkKey.findUnique({ where: { workspaceId } });
  return row?.secret;
}

/**
 * Returns the key, and creates it if necessary. If several callers create one at the same time, one is kept
 * and all of them get it.
 */
export async function requireLinkKey(database: Database, workspaceId: string): Promise<Uint8Array> {
  const existing = await findLinkKey(database, workspaceId);
  if (existing) return existing;
  await database.prisma.preferenceLinkKey.createMany({
    data: [{ workspaceId, secret: randomBytes(KEY_BYTES) }],
    skipDuplicates: true,
  });
  const { secret } = await database.prisma.preferenceLinkKey.findUniqueOrThrow({ where: { workspaceId } });
  return secret;
}

export interface Revoked {
  /** Links of a center, or of a user. */
  kind: 'center' | 'user';
  /** Id of the center, or of the profile. */
  id: string;
}

/**
 * Upserts by primary key; a later revocation replaces an earlier one. Uses Postgres's clock, which also dates
 * links.
 */
const revokeLinksStatement = `
  insert into preference_link_revocations (workspace_id, subject_kind, subject_id, revoked_at)
  values ($1::uuid, $2::text, $3::uuid, clock_timestamp())
  on conflict (workspace_id, subject_kind, subject_id) do update set revoked_at = excluded.revoked_at
  returning revoked_at as "revokedAt"`;

/** Revokes all links of the subject that were created before now. @returns the time of the revocation */
export async function revokeLinks(
  tx: Pick<Pool, 'query'>,
  workspaceId: string,
  { kind, id }: Revoked,
): Promise<Date> {
  const { rows } = await tx.query<{ revokedAt: Date }>(revokeLinksStatement, [workspaceId, kind, id]);
  return rows[0]!.revokedAt;
}
