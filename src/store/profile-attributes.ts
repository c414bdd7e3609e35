import type { Json, JsonText } from '../profile/json.ts';
import { jsonArray, laterArray, textArray, uuidArray } from './arrays.ts';
import { BETWEEN, END, MAX_NAMES_CHARACTERS } from './attribute-changes.ts';
import { jsonColumn, textColumn, uuidColumn } from './columns.ts';
import type { Connection } from './database.ts';
import { type MergePair, pairsTable, pairValues } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';

export interface CustomAttributesUpdate {
  workspaceId: string;
  id: string;
  /**
   * Attributes to overwrite, or undefined. If `unset` is empty as well, the stored value is not decompressed.
   */
  set: JsonText | undefined;
  /** Attributes to remove. */
  unset: readonly string[];
  /** Position in the batch of the last object that changed the profile. */
  ordinal: number;
  /** Beginning of the entry in `attribute_changes`; undefined if no object of the batch has attributes of it. */
  stamp: string | undefined;
}

/** Maximum number of names that are compared with each attribute. */
const FEW = 16;

/**
 * SQL of the new custom attributes: the stored ones overwritten by `set`, without `unset`, which is usually
 * null. If there are more than FEW names to remove, `unset` is an object with the names as keys, in which
 * each attribute is looked up.
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

/** Bytes of stored attributes up to which looking up some of them costs less than unpacking all of them first. */
const SMALL_BYTES = 2000;

/** SQL literals of the separators. */
export const [between, end] = [BETWEEN, END].map((one) => `chr(${one.charCodeAt(0)})`) as [string, string];

/**
 * SQL of the names in `set` whose value as text differs from the attribute of the same name. Comparing text costs less than
 * comparing jsonb.
 */
const differing = (attributes: string) => `
          select named.name
          from (select jsonb_object_keys(changed.set) as name) as named
          where ${attributes} ->> named.name is distinct from changed.set ->> named.name`;

/**
 * SQL of the names of the custom attributes that a change gives another value, or removes. Null without any change. If only
 * the type of values changes, as from 1 to "1", all names in `set` are returned. Each `case` has conditions instead of values,
 * because Citus does not preserve a value that is compared with a constant.
 */
export const changedCustomNames = `
      case
        when changed.set is null then null
        when changed.unset is null and pg_column_size(profiles.custom_attributes) <= ${SMALL_BYTES} then coalesce(
          nullif(array_to_string(array(${differing('profiles.custom_attributes')}), ${between}), ''),
          case when not profiles.custom_attributes @> changed.set then
            array_to_string(array(select jsonb_object_keys(changed.set)), ${between}) end)
        else (
          select string_agg(named.name, ${between})
          from (select profiles.custom_attributes || '{}'::jsonb as attributes offset 0) as unpacked
          cross join lateral (
            select given.name
            from jsonb_object_keys(changed.set) as given (name)
            where unpacked.attributes -> given.name is distinct from changed.set -> given.name
            union all
            select removed.name
            from jsonb_array_elements_text(case when jsonb_typeof(changed.unset) = 'array' then changed.unset end)
              as removed (name)
            where unpacked.attributes ? removed.name
            union all
            select removed.name
            from jsonb_object_keys(case when jsonb_typeof(changed.unset) = 'object' then changed.unset end)
              as removed (name)
            where unpacked.attributes ? removed.name
          ) as named
        )
      end`;

/** Characters from which old entries are removed, and the characters that remain then. */
const LONG_CHANGES = 512;
const KEPT_CHANGES = 384;

/** SQL of the new `attribute_changes`. Without changed names or without a stamp, it stays as it is. */
export const notedChanges = (names: string) => `
    coalesce(
      changed.stamp || nullif(left(${names}, ${MAX_NAMES_CHARACTERS}), '') || ${end} || case
        when octet_length(profiles.attribute_changes) > ${LONG_CHANGES}
          then left(profiles.attribute_changes, ${KEPT_CHANGES})
        else coalesce(profiles.attribute_changes, '') end,
      profiles.attribute_changes)`;

/**
 * Updates by primary key; a profile may occur only once. No indexed column changes, so these are HOT updates. The new
 * `attribute_changes` come from a sub-select, because Citus accepts no stable function of a column, such as
 * `pg_column_size`, in a plain assignment.
 */
const updateCustomAttributesStatement = withCitusForm(`
  update profiles set
    custom_attributes = ${mergedCustomAttributes},
    (attribute_changes) = (select ${notedChanges(changedCustomNames)}),
    updated_at = changed.at
  from unnest($1::uuid[], $2::uuid[], $3::jsonb[], $4::jsonb[], $5::timestamptz[], $6::text[])
    as changed (workspace_id, id, set, unset, at, stamp)
  where profiles.workspace_id = changed.workspace_id
    and profiles.id = changed.id`);

/**
 * Changes only custom attributes, at half the cost of `updateProfiles`.
 *
 * @throws if one of the profiles no longer exists; a retry of the batch succeeds
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

/** Throws if profiles are missing. Not every profile is locked before it is changed: see `lockChanged`. */
export function requireAll(rowCount: number | null, updates: CustomAttributesUpdate[]): void {
  if (rowCount !== updates.length) throw new Error(PROFILES_GONE);
}

/** Returns the parameters $1 to $6 of a statement that changes custom attributes. */
export function customValues(updates: CustomAttributesUpdate[], now: string): Buffer[] {
  const [workspaceIds, ids] = [uuidColumn(updates.length), uuidColumn(updates.length)];
  const [sets, unsets] = [jsonColumn(updates.length), jsonColumn(updates.length)];
  const stamps = textColumn(updates.length);
  for (const { workspaceId, id, set, unset, stamp } of updates) {
    workspaceIds.addUuid(workspaceId);
    ids.addUuid(id);
    sets.addJson(unset.length > 0 ? (set ?? {}) : set);
    unsets.addJson(namesOf(unset));
    stamps.addText(stamp);
  }
  const columns = [workspaceIds, ids, sets, unsets].map((column) => column.toParameter());
  return [...columns, laterArray(now, updates, ordinalOf), stamps.toParameter()];
}

const ordinalOf = ({ ordinal }: { ordinal: number }): number => ordinal;

function namesOf(unset: readonly string[]): object | undefined {
  if (unset.length === 0) return undefined;
  return unset.length <= FEW ? unset : Object.fromEntries(unset.map((name) => [name, true]));
}

/** Attributes of a large profile that a batch needs. */
interface WantedAttributes {
  workspaceId: string;
  id: string;
  /** Custom attributes whose size is needed. */
  names: string[];
  /** Custom attributes whose value is needed. */
  keys: string[];
}

export interface LargeAttributes {
  workspaceId: string;
  id: string;
  /** Stored size in bytes of each attribute without its name. Missing attributes are omitted. */
  sizes: Record<string, number> | null;
  /** Values of the attributes. Missing attributes are omitted. */
  custom: Record<string, Json> | null;
}

/**
 * Reads by primary key and decompresses once per profile. A scalar on its own is stored as an array with one
 * element, which takes 8 bytes more than within an object. The result is built as json, because building
 * jsonb took 12 to 100 times as long.
 */
const readLargeAttributesStatement = withCitusForm(`
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
  cross join lateral (select profiles.custom_attributes || '{}'::jsonb as attributes offset 0) as unpacked`);

/** Reads values and sizes of custom attributes of locked profiles that have many attributes. */
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
 * Reads by primary keys; takes no lock. The token of a merged user may not have been moved yet: it belongs to
 * the user who the profile was merged into, unless that user was deleted.
 */
const findPushTokensStatement = withCitusForm(`
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
    and profiles.id = owners.profile_id`);

/** Returns those of the tokens that already belong to a profile. */
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

/** Upserts in primary key order. A token belongs to the profile that named it last. */
const upsertPushTokensStatement = withCitusForm(`
  insert into push_tokens (workspace_id, app_id, token, device_id, profile_id, created_at)
  select given.workspace_id, given.app_id, given.token, given.device_id, given.profile_id, $6::timestamptz
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::uuid[])
    as given (workspace_id, app_id, token, device_id, profile_id)
  order by given.workspace_id, given.app_id, given.token
  on conflict (workspace_id, app_id, token) do update set
    device_id = excluded.device_id,
    profile_id = excluded.profile_id`);

/** Writes push tokens. A token may occur only once. */
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
 * Moves up to $4 tokens of each profile, by push_tokens_profile and then in primary key order. A token that
 * another profile has taken in the meantime stays there. The last comparison uses a form that no index
 * supports; otherwise each token would be searched among all tokens of its profile.
 */
const movePushTokensStatement = withCitusForm(`
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
    and push_tokens.profile_id is not distinct from slice.merged_id`);

/** Moves tokens of merged profiles to the kept ones. @returns the number of moved tokens */
export async function movePushTokens(
  tx: Connection,
  pairs: MergePair[],
  rowsOfEach: number,
): Promise<number> {
  const values = [...pairValues(pairs), rowsOfEach];
  const { rowCount } = await tx.query({ name: 'move-push-tokens', text: movePushTokensStatement, values });
  return rowCount ?? 0;
}
