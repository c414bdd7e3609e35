import type { Connection } from './database.ts';
import { type MergePair, pairsTable, pairValues } from './merges.ts';

/**
 * By primary keys; locks nothing. A token of somebody who was merged may not have followed yet: it belongs to whoever
 * has taken that user in, and to nobody when that one is deleted.
 */
const findPushTokensStatement = `
  with recursive owners as (
    select push_tokens.workspace_id, push_tokens.app_id, push_tokens.token, push_tokens.profile_id
    from unnest($1::uuid[], $2::text[], $3::text[]) as wanted (workspace_id, app_id, token)
    join push_tokens
      on push_tokens.workspace_id = wanted.workspace_id
      and push_tokens.app_id = wanted.app_id
      and push_tokens.token = wanted.token
    union
    select owners.workspace_id, owners.app_id, owners.token, merged_profiles.kept_id
    from owners
    join merged_profiles
      on merged_profiles.workspace_id = owners.workspace_id
      and merged_profiles.profile_id = owners.profile_id
  )
  select owners.workspace_id as "workspaceId", owners.app_id as "appId", owners.token
  from owners
  join profiles
    on profiles.workspace_id = owners.workspace_id
    and profiles.id = owners.profile_id`;

/** Those of the tokens that belong to a profile already. */
export async function findPushTokens(
  tx: Connection,
  tokens: { workspaceId: string; app_id: string; token: string }[],
): Promise<{ workspaceId: string; appId: string; token: string }[]> {
  const { rows } = await tx.query({
    name: 'find-push-tokens',
    text: findPushTokensStatement,
    values: [
      tokens.map(({ workspaceId }) => workspaceId),
      tokens.map(({ app_id }) => app_id),
      tokens.map(({ token }) => token),
    ],
  });
  return rows;
}

export interface PushTokenRow {
  workspace_id: string;
  app_id: string;
  token: string;
  device_id: string;
  profile_id: string;
}

/** Upserts by primary key, sorted by it; a token belongs to the profile that named it last. */
const upsertPushTokensStatement = `
  insert into push_tokens (workspace_id, app_id, token, device_id, profile_id, created_at)
  select given.workspace_id, given.app_id, given.token, given.device_id, given.profile_id, $2::timestamptz
  from jsonb_to_recordset($1::jsonb) as given (
    workspace_id uuid, app_id text, token text, device_id text, profile_id uuid)
  order by given.workspace_id, given.app_id, given.token
  on conflict (workspace_id, app_id, token) do update set
    device_id = excluded.device_id,
    profile_id = excluded.profile_id`;

/** Each token stands once. */
export async function upsertPushTokens(tx: Connection, tokens: PushTokenRow[], now: string): Promise<void> {
  await tx.query({
    name: 'upsert-push-tokens',
    text: upsertPushTokensStatement,
    values: [JSON.stringify(tokens), now],
  });
}

/**
 * By push_tokens_profile, then by primary key and in its order: at most $4 tokens of each profile. A token that
 * somebody else has named meanwhile stays theirs. The comparison is one that no index serves, or each token would be
 * looked for among all those of its profile.
 */
const movePushTokensStatement = `
  with slice as materialized (
    select pairs.workspace_id, pairs.merged_id, pairs.kept_id, hit.app_id, hit.token
    from ${pairsTable}
    cross join lateral (
      select push_tokens.app_id, push_tokens.token
      from push_tokens
      where push_tokens.workspace_id = pairs.workspace_id
        and push_tokens.profile_id = pairs.merged_id
      limit $4
    ) as hit
    order by pairs.workspace_id, hit.app_id, hit.token
  )
  update push_tokens set profile_id = slice.kept_id
  from slice
  where push_tokens.workspace_id = slice.workspace_id
    and push_tokens.app_id = slice.app_id
    and push_tokens.token = slice.token
    and push_tokens.profile_id is not distinct from slice.merged_id`;

/** @returns how many tokens have moved */
export async function movePushTokens(
  tx: Connection,
  pairs: MergePair[],
  rowsOfEach: number,
): Promise<number> {
  const values = [...pairValues(pairs), rowsOfEach];
  const { rowCount } = await tx.query({ name: 'move-push-tokens', text: movePushTokensStatement, values });
  return rowCount ?? 0;
}
