import { randomBytes } from 'node:crypto';
import type { Database, Pool } from './database.ts';

/**
 * By the primary keys of merged_profiles and profiles; a chain of merges has no cycles, since a merged profile is gone.
 * The limit keeps the planner from a join.
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

/** The profile, or the one that it was merged into, however often; undefined when that is gone. */
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

export interface LinkUser {
  id: string;
  email: string | null;
  /** Epoch milliseconds, Postgres's clock: the one that links are made and revoked by. */
  now: number;
}

/** By the unique index profiles_external_id, else by the primary keys of deprecated_external_ids and profiles. */
const findLinkUserStatement = `
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
  limit 1`;

/** Whom an external id names, also one that was renamed away. */
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

/** Bytes of a key: as many as HMAC-SHA-256 gives. */
const KEY_BYTES = 32;

/** The key that the workspace's links are signed with, if it has made any. */
export async function findLinkKey(
  { prisma }: Database,
  workspaceId: string,
): Promise<Uint8Array | undefined> {
  const row = await prisma.preferenceLinkKey.findUnique({ where: { workspaceId } });
  return row?.secret;
}

/** The same, made now if need be. Of several that are made at once one stays, and all callers get that one. */
export async function requireLinkKey(database: Database, workspaceId: string): Promise<Uint8Array> {
  const found = await findLinkKey(database, workspaceId);
  if (found) return found;
  await database.prisma.preferenceLinkKey.createMany({
    data: [{ workspaceId, secret: randomBytes(KEY_BYTES) }],
    skipDuplicates: true,
  });
  const { secret } = await database.prisma.preferenceLinkKey.findUniqueOrThrow({ where: { workspaceId } });
  return secret;
}

export interface Revoked {
  /** A center's links, or a user's. */
  kind: 'center' | 'user';
  /** The center's id, or the profile's. */
  id: string;
}

/** By primary key; of two revocations the later stands. Postgres's clock, which links are made by as well. */
const revokeLinksStatement = `
  insert into preference_link_revocations (workspace_id, subject_kind, subject_id, revoked_at)
  values ($1::uuid, $2::text, $3::uuid, clock_timestamp())
  on conflict (workspace_id, subject_kind, subject_id) do update set revoked_at = excluded.revoked_at
  returning revoked_at as "revokedAt"`;

/** Every link of the subject that was made until now opens nothing from now on. @returns now */
export async function revokeLinks(
  tx: Pick<Pool, 'query'>,
  workspaceId: string,
  { kind, id }: Revoked,
): Promise<Date> {
  const { rows } = await tx.query<{ revokedAt: Date }>(revokeLinksStatement, [workspaceId, kind, id]);
  return rows[0]!.revokedAt;
}
