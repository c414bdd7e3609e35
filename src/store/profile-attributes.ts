import type { Json, JsonText } from '../profile/json.ts';
import { jsonArray, laterArray, textArray, uuidArray } from './arrays.ts';
import { jsonColumn, uuidColumn } from './columns.ts';
import type { Connection } from './database.ts';
import { type MergePair, pairsTable, pairValues } from './merges.ts';

export interface CustomAttributesUpdate {
  workspaceId: string;
  id: string;
  /** Attributes to overwrite; undefined: none. With none to remove either, what is stored is not even unpacked. */
  set: JsonText | undefined;
  /** Attributes to remove. */
  unset: readonly string[];
  /** Place in the batch of the last object that changed the profile. */
  ordinal: number;
}

/** Names that are few enough to be compared with each attribute. */
const FEW = 16;

/**
 * What a profile has then: `set` laid over it, without `unset`, which is null for most. Many names are keys of an
 * object, in which each attribute is looked up.
 */
export const mergedCustomAttributes = `
    case
      when changed.set is null then profiles.custom_attributes
      when changed.unset is null then profiles.custom_attributes || changed.set
      when jsonb_typeof(changed.unset) = 'array' then
        (profiles.custom_attributes || changed.set) - array(select jsonb_array_elements_text(changed.unset))
      else (
        select coalesce(jsonb_object_agg(attributes.key, attributes.value), '{}'::jsonb)
        from jsonb_each(profiles.custom_attributes || changed.set) as attributes
        where not changed.unset ? attributes.key)
    end`;

/** By primary key; each profile stands once. No indexed column changes: HOT. */
const updateCustomAttributesStatement = `
  update profiles set
    custom_attributes = ${mergedCustomAttributes},
    updated_at = changed.at
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[], $5::timestamptz[])
    as changed (workspace_id, id, set, unset, at)
  where profiles.workspace_id = changed.workspace_id
    and profiles.id = changed.id`;

/**
 * Changes custom attributes alone, at half the cost of `updateProfiles`.
 * @throws when one of the profiles is gone; trying again later helps
 */
export async function updateCustomAttributes(
  tx: Connection,
  updates: CustomAttributesUpdate[],
  now: string,
): Promise<void> {
  const { rowCount } = await tx.query({
    name: 'update-custom-attributes',
    text: updateCustomAttributesStatement,
    values: customValues(updates, now),
  });
  requireAll(rowCount, updates);
}

export const PROFILES_GONE = 'profiles were merged or deleted while they were being changed';

/** Not every profile is locked before it is changed: see `lockChanged`. */
export function requireAll(rowCount: number | null, updates: CustomAttributesUpdate[]): void {
  if (rowCount !== updates.length) throw new Error(PROFILES_GONE);
}

/** The parameters $1 to $5 of a statement that changes custom attributes. */
export function customValues(updates: CustomAttributesUpdate[], now: string): Buffer[] {
  const [workspaceIds, ids] = [uuidColumn(updates.length), uuidColumn(updates.length)];
  const [sets, unsets] = [jsonColumn(updates.length), jsonColumn(updates.length)];
  for (const { workspaceId, id, set, unset } of updates) {
    workspaceIds.addUuid(workspaceId);
    ids.addUuid(id);
    sets.addJson(unset.length > 0 ? (set ?? {}) : set);
    unsets.addJson(namesOf(unset));
  }
  const columns = [workspaceIds, ids, sets, unsets].map((column) => column.toParameter());
  return [...columns, laterArray(now, updates, ordinalOf)];
}

const ordinalOf = ({ ordinal }: { ordinal: number }): number => ordinal;

function namesOf(unset: readonly string[]): object | undefined {
  if (unset.length === 0) return undefined;
  return unset.length <= FEW ? unset : Object.fromEntries(unset.map((name) => [name, true]));
}

/** What a round asks about one profile that has much. */
interface WantedAttributes {
  workspaceId: string;
  id: string;
  /** Custom attributes whose size is needed. */
  names: string[];
  /** Those whose value is. */
  keys: string[];
}

export interface LargeAttributes {
  workspaceId: string;
  id: string;
  /** Bytes that each takes as it is stored, without its name; one that is not there is missing. */
  sizes: Record<string, number> | null;
  /** Their values; one that is not there is missing. */
  custom: Record<string, Json> | null;
}

/**
 * By primary key; unpacked once for all names of a profile. A scalar that stands alone is wrapped as an array of one: 8
 * bytes more than it takes among others. Values are written as json at once: to build jsonb of them first took twelve
 * to a hundred times as long.
 */
const readLargeAttributesStatement = `
  select
    profiles.workspace_id as "workspaceId",
    profiles.id,
    (
      select json_object_agg(
        wanted_name.name,
        pg_column_size(unpacked.attributes -> wanted_name.name)
          - case when jsonb_typeof(unpacked.attributes -> wanted_name.name) in ('array', 'object') then 0 else 8 end)
      from jsonb_array_elements_text(wanted.names) as wanted_name (name)
      where unpacked.attributes ? wanted_name.name
    ) as sizes,
    (
      select json_object_agg(wanted_key.key, unpacked.attributes -> wanted_key.key)
      from jsonb_array_elements_text(wanted.keys) as wanted_key (key)
      where unpacked.attributes ? wanted_key.key
    ) as custom
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[]) as wanted (workspace_id, id, names, keys)
  join profiles
    on profiles.workspace_id = wanted.workspace_id
    and profiles.id = wanted.id
  cross join lateral (select profiles.custom_attributes || '{}'::jsonb as attributes offset 0) as unpacked`;

/** Reads custom attributes of locked profiles that have many, and how much they take. */
export async function readLargeAttributes(
  tx: Connection,
  wanted: WantedAttributes[],
): Promise<LargeAttributes[]> {
  const { rows } = await tx.query<LargeAttributes>({
    name: 'read-large-attributes',
    text: readLargeAttributesStatement,
    values: [
      uuidArray(wanted, ({ workspaceId }) => workspaceId),
      uuidArray(wanted, ({ id }) => id),
      jsonArray(wanted, ({ names }) => names),
      jsonArray(wanted, ({ keys }) => keys),
    ],
  });
  return rows;
}

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
  tokens: { workspaceId: string; appId: string; token: string }[],
): Promise<{ workspaceId: string; appId: string; token: string }[]> {
  const { rows } = await tx.query({
    name: 'find-push-tokens',
    text: findPushTokensStatement,
    values: [
      tokens.map(({ workspaceId }) => workspaceId),
      tokens.map(({ appId }) => appId),
      tokens.map(({ token }) => token),
    ],
  });
  return rows;
}

export interface PushTokenRow {
  workspaceId: string;
  appId: string;
  token: string;
  deviceId: string;
  profileId: string;
}

/** Upserts by primary key, sorted by it; a token belongs to the profile that named it last. */
const upsertPushTokensStatement = `
  insert into push_tokens (workspace_id, app_id, token, device_id, profile_id, created_at)
  select given.workspace_id, given.app_id, given.token, given.device_id, given.profile_id, $6::timestamptz
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[])
    as given (workspace_id, app_id, token, device_id, profile_id)
  order by given.workspace_id, given.app_id, given.token
  on conflict (workspace_id, app_id, token) do update set
    device_id = excluded.device_id,
    profile_id = excluded.profile_id`;

/** Each token stands once. */
export async function upsertPushTokens(tx: Connection, tokens: PushTokenRow[], now: string): Promise<void> {
  await tx.query({
    name: 'upsert-push-tokens',
    text: upsertPushTokensStatement,
    values: [
      uuidArray(tokens, (row) => row.workspaceId),
      textArray(tokens, (row) => row.appId),
      textArray(tokens, (row) => row.token),
      textArray(tokens, (row) => row.deviceId),
      uuidArray(tokens, (row) => row.profileId),
      now,
    ],
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
