import { laterArray, textArray, texts, uuidArray, uuids } from './arrays.ts';
import type { Connection, Pool } from './database.ts';
import { type ProfileRow, profileColumns } from './identifiers.ts';
import {
  keysTable,
  keyValues,
  MAX_ALIASES,
  MAX_DEPRECATED,
  type MergePair,
  type ProfileKey,
  pairsTable,
  pairValues,
} from './merges.ts';
import { withCitusForm } from './one-workspace.ts';

/** Reads by the primary keys of user_aliases and profiles; takes no lock. */
const findByAliasStatement = withCitusForm(`
  select ${profileColumns}, wanted.alias_label as "aliasLabel", wanted.alias_name as "aliasName"
  from unnest($1::uuid[], $2::text[], $3::text[]) as wanted (workspace_id, alias_label, alias_name)
  join user_aliases
    on user_aliases.workspace_id = wanted.workspace_id
    and user_aliases.alias_label = wanted.alias_label
    and user_aliases.alias_name = wanted.alias_name
  join profiles
    on profiles.workspace_id = user_aliases.workspace_id
    and profiles.id = user_aliases.profile_id`);

type AliasedProfileRow = ProfileRow & { aliasLabel: string; aliasName: string };

export async function findByAlias(
  tx: Connection,
  { workspaceIds, labels, names }: { workspaceIds: string[]; labels: string[]; names: string[] },
): Promise<AliasedProfileRow[]> {
  const { rows } = await tx.query<AliasedProfileRow>({
    name: 'find-by-alias',
    text: findByAliasStatement,
    values: [uuids(workspaceIds), texts(labels), texts(names)],
  });
  return rows;
}

/** Reads by user_aliases_profile; takes no lock. */
const findAliasLabelsStatement = withCitusForm(`
  select user_aliases.workspace_id as "workspaceId", user_aliases.profile_id as id, user_aliases.alias_label as label
  from ${keysTable}
  join user_aliases
    on user_aliases.workspace_id = wanted.workspace_id
    and user_aliases.profile_id = wanted.id`);

/** Returns the labels of the profiles' aliases. A user has one alias per label. */
export async function findAliasLabels(
  tx: Connection,
  keys: ProfileKey[],
): Promise<{ workspaceId: string; id: string; label: string }[]> {
  const { rows } = await tx.query({
    name: 'find-alias-labels',
    text: findAliasLabelsStatement,
    values: keyValues(keys),
  });
  return rows;
}

export interface NewAlias {
  workspaceId: string;
  aliasLabel: string;
  aliasName: string;
  profileId: string;
}

/** An alias that another lane has assigned in the meantime raises 23505, and the batch is retried. */
const insertAliasesStatement = withCitusForm(`
  insert into user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)
  select made.workspace_id, made.alias_label, made.alias_name, made.profile_id, $5::timestamptz
  from unnest($1::uuid[], $2::text[], $3::text[], $4::uuid[])
    as made (workspace_id, alias_label, alias_name, profile_id)`);

export async function insertAliases(tx: Connection, aliases: NewAlias[], now: string): Promise<void> {
  await tx.query({
    name: 'insert-aliases',
    text: insertAliasesStatement,
    values: [
      uuidArray(aliases, (row) => row.workspaceId),
      textArray(aliases, (row) => row.aliasLabel),
      textArray(aliases, (row) => row.aliasName),
      uuidArray(aliases, (row) => row.profileId),
      now,
    ],
  });
}

/**
 * Updates by user_aliases_profile. A user has one alias per label: if both profiles have one, the alias of
 * the kept profile stays. Aliases move in the order of their labels, up to the maximum number of the kept
 * profile.
 */
const moveAliasesStatement = withCitusForm(`
  with moving as materialized (
    select pairs.workspace_id, pairs.merged_id, pairs.kept_id, hit.alias_label
    from ${pairsTable}
    cross join lateral (
      select count(*) as number
      from (
        select from user_aliases
        where user_aliases.workspace_id = pairs.workspace_id
          and user_aliases.profile_id = pairs.kept_id
        limit ${MAX_ALIASES}) as those
    ) as own
    cross join lateral (
      select user_aliases.alias_label
      from user_aliases
      where user_aliases.workspace_id = pairs.workspace_id
        and user_aliases.profile_id = pairs.merged_id
        and (
          select 1 from user_aliases as same
          where same.workspace_id = pairs.workspace_id
            and same.profile_id = pairs.kept_id
            and same.alias_label = user_aliases.alias_label
          limit 1) is null
      order by user_aliases.alias_label
      limit ${MAX_ALIASES} - own.number
    ) as hit
  )
  update user_aliases set profile_id = moving.kept_id
  from moving
  where user_aliases.workspace_id = moving.workspace_id
    and user_aliases.profile_id = moving.merged_id
    and user_aliases.alias_label = moving.alias_label`);

/** Moves aliases to the kept profiles. Aliases that do not move no longer identify a user. */
export async function moveAliases(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'move-aliases', text: moveAliasesStatement, values: pairValues(pairs) });
}

export interface RenamedAlias {
  workspaceId: string;
  aliasLabel: string;
  oldAliasName: string;
  newAliasName: string;
  profileId: string;
}

/**
 * Updates by primary key. A name that another lane has assigned in the meantime raises 23505, and the batch
 * is retried.
 */
const renameAliasesStatement = withCitusForm(`
  update user_aliases set alias_name = given.new_alias_name
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
    as given (workspace_id, alias_label, old_alias_name, new_alias_name)
  where user_aliases.workspace_id = given.workspace_id
    and user_aliases.alias_label = given.alias_label
    and user_aliases.alias_name = given.old_alias_name`);

export async function renameAliases(tx: Connection, aliases: RenamedAlias[]): Promise<void> {
  await tx.query({
    name: 'rename-aliases',
    text: renameAliasesStatement,
    values: [
      uuidArray(aliases, (row) => row.workspaceId),
      aliases.map((row) => row.aliasLabel),
      aliases.map((row) => row.oldAliasName),
      aliases.map((row) => row.newAliasName),
    ],
  });
}

export interface DeprecatedExternalId {
  workspaceId: string;
  externalId: string;
  profileId: string;
}

const deprecateExternalIdsStatement = withCitusForm(`
  insert into deprecated_external_ids (workspace_id, external_id, profile_id, created_at)
  select given.workspace_id, given.external_id, given.profile_id, $4::timestamptz
  from unnest($1::uuid[], $2::text[], $3::uuid[]) as given (workspace_id, external_id, profile_id)`);

/** Records former external ids, so that they still resolve to their profiles. */
export async function deprecateExternalIds(
  tx: Connection,
  ids: DeprecatedExternalId[],
  now: string,
): Promise<void> {
  await tx.query({
    name: 'deprecate-external-ids',
    text: deprecateExternalIdsStatement,
    values: [
      uuidArray(ids, (row) => row.workspaceId),
      ids.map((row) => row.externalId),
      uuidArray(ids, (row) => row.profileId),
      now,
    ],
  });
}

/** Deletes by primary key. */
const removeDeprecatedExternalIdsStatement = withCitusForm(`
  delete from deprecated_external_ids
  using unnest($1::uuid[], $2::text[]) as given (workspace_id, external_id)
  where deprecated_external_ids.workspace_id = given.workspace_id
    and deprecated_external_ids.external_id = given.external_id`);

/** Deletes deprecated external ids, so that they no longer resolve to a profile. */
export async function removeDeprecatedExternalIds(
  tx: Connection,
  ids: Pick<DeprecatedExternalId, 'workspaceId' | 'externalId'>[],
): Promise<void> {
  await tx.query({
    name: 'remove-deprecated-external-ids',
    text: removeDeprecatedExternalIdsStatement,
    values: [uuidArray(ids, (row) => row.workspaceId), ids.map((row) => row.externalId)],
  });
}

/** Reads by the primary keys of deprecated_external_ids and profiles; takes no lock. */
const findByDeprecatedExternalIdStatement = withCitusForm(`
  select ${profileColumns}, wanted.external_id as "deprecatedId"
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, external_id)
  join deprecated_external_ids
    on deprecated_external_ids.workspace_id = wanted.workspace_id
    and deprecated_external_ids.external_id = wanted.external_id
  join profiles
    on profiles.workspace_id = deprecated_external_ids.workspace_id
    and profiles.id = deprecated_external_ids.profile_id`);

/** Returns the profiles that had these external ids before a rename. */
export async function findByDeprecatedExternalId(
  tx: Pick<Connection | Pool, 'query'>,
  workspaceIds: string[],
  externalIds: string[],
): Promise<(ProfileRow & { deprecatedId: string })[]> {
  const { rows } = await tx.query<ProfileRow & { deprecatedId: string }>({
    name: 'find-by-deprecated-external-id',
    text: findByDeprecatedExternalIdStatement,
    values: [uuids(workspaceIds), texts(externalIds)],
  });
  return rows;
}

export interface NewExternalId {
  workspaceId: string;
  id: string;
  externalId: string;
  /** Position in the batch. */
  ordinal: number;
}

/**
 * Updates by primary key; the rows are already locked. An id that another lane has assigned in the meantime
 * raises 23505.
 */
const setExternalIdsStatement = withCitusForm(`
  update profiles set
    external_id = given.external_id,
    updated_at = given.at
  from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[]) as given (workspace_id, id, external_id, at)
  where profiles.workspace_id = given.workspace_id
    and profiles.id = given.id`);

/** Sets the external ids of profiles. */
export async function setExternalIds(tx: Connection, ids: NewExternalId[], now: string): Promise<void> {
  await tx.query({
    name: 'set-external-ids',
    text: setExternalIdsStatement,
    values: [
      uuidArray(ids, (row) => row.workspaceId),
      uuidArray(ids, (row) => row.id),
      ids.map((row) => row.externalId),
      laterArray(now, ids, (row) => row.ordinal),
    ],
  });
}

/** Counts by deprecated_external_ids_profile, up to MAX_DEPRECATED; takes no lock. */
const countDeprecatedStatement = withCitusForm(`
  select wanted.workspace_id as "workspaceId", wanted.id, found.number::integer
  from ${keysTable}
  cross join lateral (
    select count(*) as number
    from (
      select from deprecated_external_ids
      where deprecated_external_ids.workspace_id = wanted.workspace_id
        and deprecated_external_ids.profile_id = wanted.id
      limit ${MAX_DEPRECATED}) as those
  ) as found`);

/** Returns the number of deprecated external ids of each profile, up to MAX_DEPRECATED. */
export async function countDeprecated(
  tx: Connection,
  keys: ProfileKey[],
): Promise<{ workspaceId: string; id: string; number: number }[]> {
  const { rows } = await tx.query({
    name: 'count-deprecated',
    text: countDeprecatedStatement,
    values: keyValues(keys),
  });
  return rows;
}
