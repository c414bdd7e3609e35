import { texts, uuidArray, uuids } from './arrays.ts';
import type { Connection } from './database.ts';
import { type ProfileRow, profileColumns } from './identifiers.ts';
import {
  keysTable,
  keyValues,
  MAX_ALIASES,
  type MergePair,
  type ProfileKey,
  pairsTable,
  pairValues,
} from './merges.ts';

/** By the primary keys of user_aliases and profiles; locks nothing. */
const findByAliasStatement = `
  select ${profileColumns}, wanted.alias_label as "aliasLabel", wanted.alias_name as "aliasName"
  from unnest($1::uuid[], $2::text[], $3::text[]) as wanted (workspace_id, alias_label, alias_name)
  join user_aliases
    on user_aliases.workspace_id = wanted.workspace_id
    and user_aliases.alias_label = wanted.alias_label
    and user_aliases.alias_name = wanted.alias_name
  join profiles
    on profiles.workspace_id = user_aliases.workspace_id
    and profiles.id = user_aliases.profile_id`;

export type AliasedProfileRow = ProfileRow & { aliasLabel: string; aliasName: string };

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

/** By user_aliases_profile; locks nothing. */
const findAliasLabelsStatement = `
  select user_aliases.workspace_id as "workspaceId", user_aliases.profile_id as id, user_aliases.alias_label as label
  from ${keysTable}
  join user_aliases
    on user_aliases.workspace_id = wanted.workspace_id
    and user_aliases.profile_id = wanted.id`;

/** The labels under which profiles have an alias: one alias per label and user. */
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
  workspace_id: string;
  alias_label: string;
  alias_name: string;
  profile_id: string;
}

/** A pair that another lane gave away meanwhile raises 23505, and the batch is tried again. */
const insertAliasesStatement = `
  insert into user_aliases (workspace_id, alias_label, alias_name, profile_id, created_at)
  select made.workspace_id, made.alias_label, made.alias_name, made.profile_id, $2::timestamptz
  from jsonb_to_recordset($1::jsonb) as made (
    workspace_id uuid, alias_label text, alias_name text, profile_id uuid)`;

export async function insertAliases(tx: Connection, aliases: NewAlias[], now: string): Promise<void> {
  await tx.query({
    name: 'insert-aliases',
    text: insertAliasesStatement,
    values: [JSON.stringify(aliases), now],
  });
}

/**
 * By user_aliases_profile. One alias per label and user: where both have one, the kept profile's stays. As many move
 * as the kept profile may have, in the order of their labels.
 */
const moveAliasesStatement = `
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
    and user_aliases.alias_label = moving.alias_label`;

/** Aliases that do not move name nobody any more. */
export async function moveAliases(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'move-aliases', text: moveAliasesStatement, values: pairValues(pairs) });
}

export interface RenamedAlias {
  workspace_id: string;
  alias_label: string;
  old_alias_name: string;
  new_alias_name: string;
  profile_id: string;
}

/** By primary key. A name that another lane gave away meanwhile raises 23505, and the batch is tried again. */
const renameAliasesStatement = `
  update user_aliases set alias_name = given.new_alias_name
  from unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
    as given (workspace_id, alias_label, old_alias_name, new_alias_name)
  where user_aliases.workspace_id = given.workspace_id
    and user_aliases.alias_label = given.alias_label
    and user_aliases.alias_name = given.old_alias_name`;

export async function renameAliases(tx: Connection, aliases: RenamedAlias[]): Promise<void> {
  await tx.query({
    name: 'rename-aliases',
    text: renameAliasesStatement,
    values: [
      uuidArray(aliases, (row) => row.workspace_id),
      aliases.map((row) => row.alias_label),
      aliases.map((row) => row.old_alias_name),
      aliases.map((row) => row.new_alias_name),
    ],
  });
}
