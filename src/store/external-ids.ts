import { laterArray, texts, uuidArray, uuids } from './arrays.ts';
import type { Connection, Pool } from './database.ts';
import { type ProfileRow, profileColumns } from './identifiers.ts';
import { keysTable, keyValues, MAX_DEPRECATED, type ProfileKey } from './merges.ts';

export interface DeprecatedExternalId {
  workspace_id: string;
  external_id: string;
  profile_id: string;
}

const deprecateExternalIdsStatement = `
  insert into deprecated_external_ids (workspace_id, external_id, profile_id, created_at)
  select given.workspace_id, given.external_id, given.profile_id, $4::timestamptz
  from unnest($1::uuid[], $2::text[], $3::uuid[]) as given (workspace_id, external_id, profile_id)`;

/** Lets external ids that profiles no longer go by resolve to them still. */
export async function deprecateExternalIds(
  tx: Connection,
  ids: DeprecatedExternalId[],
  now: string,
): Promise<void> {
  await tx.query({
    name: 'deprecate-external-ids',
    text: deprecateExternalIdsStatement,
    values: [
      uuidArray(ids, (row) => row.workspace_id),
      ids.map((row) => row.external_id),
      uuidArray(ids, (row) => row.profile_id),
      now,
    ],
  });
}

/** By primary key. */
const removeDeprecatedExternalIdsStatement = `
  delete from deprecated_external_ids
  using unnest($1::uuid[], $2::text[]) as given (workspace_id, external_id)
  where deprecated_external_ids.workspace_id = given.workspace_id
    and deprecated_external_ids.external_id = given.external_id`;

/** From now on the ids resolve to nobody. */
export async function removeDeprecatedExternalIds(
  tx: Connection,
  ids: { workspace_id: string; external_id: string }[],
): Promise<void> {
  await tx.query({
    name: 'remove-deprecated-external-ids',
    text: removeDeprecatedExternalIdsStatement,
    values: [uuidArray(ids, (row) => row.workspace_id), ids.map((row) => row.external_id)],
  });
}

/** By the primary keys of deprecated_external_ids and profiles; locks nothing. */
const findByDeprecatedExternalIdStatement = `
  select ${profileColumns}, wanted.external_id as "deprecatedId"
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, external_id)
  join deprecated_external_ids
    on deprecated_external_ids.workspace_id = wanted.workspace_id
    and deprecated_external_ids.external_id = wanted.external_id
  join profiles
    on profiles.workspace_id = deprecated_external_ids.workspace_id
    and profiles.id = deprecated_external_ids.profile_id`;

/** Those whom external ids named before they were renamed. */
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
  workspace_id: string;
  id: string;
  external_id: string;
  /** Place in the batch. */
  ordinal: number;
}

/** By primary key; the rows are locked already. An id that another lane gave away meanwhile raises 23505. */
const setExternalIdsStatement = `
  update profiles set
    external_id = given.external_id,
    updated_at = given.at
  from unnest($1::uuid[], $2::uuid[], $3::text[], $4::timestamptz[]) as given (workspace_id, id, external_id, at)
  where profiles.workspace_id = given.workspace_id
    and profiles.id = given.id`;

/** Gives profiles the external id by which they go from now on. */
export async function setExternalIds(tx: Connection, ids: NewExternalId[], now: string): Promise<void> {
  await tx.query({
    name: 'set-external-ids',
    text: setExternalIdsStatement,
    values: [
      uuidArray(ids, (row) => row.workspace_id),
      uuidArray(ids, (row) => row.id),
      ids.map((row) => row.external_id),
      laterArray(now, ids, (row) => row.ordinal),
    ],
  });
}

/** By deprecated_external_ids_profile, no further than a user may have; locks nothing. */
const countDeprecatedStatement = `
  select wanted.workspace_id as "workspaceId", wanted.id, found.number::integer
  from ${keysTable}
  cross join lateral (
    select count(*) as number
    from (
      select from deprecated_external_ids
      where deprecated_external_ids.workspace_id = wanted.workspace_id
        and deprecated_external_ids.profile_id = wanted.id
      limit ${MAX_DEPRECATED}) as those
  ) as found`;

/** How many external ids lead to each profile besides the one by which it goes; MAX_DEPRECATED at most. */
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
