import { NIL_UUID } from '../platform/ids.ts';
import type { Connection, Pool } from './database.ts';
import { dependents } from './erasures.ts';
import { keysTable, keyValues, type MergePair, type ProfileKey } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';
import { nameOfText } from './refused-of-users.ts';
import { requestErasures } from './stream-erasures.ts';

/** Tombstone of a removed profile that still has work to be done. */
export interface Tombstone {
  workspaceId: string;
  id: string;
  /**
   * `merged`: late summaries are moved to the profile that it was merged into. `deleted`: its data is erased.
   */
  fate: 'merged' | 'deleted';
}

/** Reads in primary key order. The table only has profiles with remaining work. */
const selectTombstonesStatement = `
  select removed_profiles.workspace_id as "workspaceId", removed_profiles.profile_id as id
  from removed_profiles
  where (removed_profiles.workspace_id, removed_profiles.profile_id) > ($2::uuid, $3::uuid)
  order by removed_profiles.workspace_id, removed_profiles.profile_id
  limit $1`;

/**
 * Returns a page of tombstones: removed profiles that still have work to be done.
 *
 * @param after last tombstone of the previous page; absent for the first page
 */
export async function selectTombstones(pool: Pool, limit: number, after?: ProfileKey): Promise<ProfileKey[]> {
  const { rows } = await pool.query<ProfileKey>({
    name: 'select-tombstones',
    text: selectTombstonesStatement,
    values: [limit, after?.workspaceId ?? NIL_UUID, after?.id ?? NIL_UUID],
  });
  return rows;
}

/** Reads by primary key. Skips tombstones that another worker has locked. */
const lockTombstonesStatement = withCitusForm(`
  select removed_profiles.workspace_id as "workspaceId", removed_profiles.profile_id as id, removed_profiles.fate
  from ${keysTable}
  join removed_profiles
    on removed_profiles.workspace_id = wanted.workspace_id
    and removed_profiles.profile_id = wanted.id
  for update of removed_profiles skip locked`);

/**
 * Locks tombstones until the end of the transaction. Statements of the transaction are planned for each
 * execution, because a plan that was made for a nearly empty table would scan the whole table for each row of
 * a slice.
 */
export async function lockTombstones(tx: Connection, keys: ProfileKey[]): Promise<Tombstone[]> {
  await tx.query('set local plan_cache_mode = force_custom_plan');
  const { rows } = await tx.query<Tombstone>({
    name: 'lock-tombstones',
    text: lockTombstonesStatement,
    values: keyValues(keys),
  });
  return rows;
}

/** Follows each merge to its end, by the primary keys of merged_profiles and profiles. */
const findKeptStatement = withCitusForm(`
  with recursive chain as (
    select wanted.workspace_id, wanted.id as merged_id, wanted.id as kept_id, false as moved
    from ${keysTable}
    union
    select chain.workspace_id, chain.merged_id, merged_profiles.kept_id, true
    from chain
    join merged_profiles
      on merged_profiles.workspace_id = chain.workspace_id
      and merged_profiles.profile_id = chain.kept_id
  )
  select chain.workspace_id as "workspaceId", chain.merged_id as "mergedId", chain.kept_id as "keptId"
  from chain
  join profiles on profiles.workspace_id = chain.workspace_id and profiles.id = chain.kept_id
  where chain.moved`);

/**
 * Returns the current owners of merged profiles. Profiles whose last owner was removed as well are omitted.
 */
export async function findKept(tx: Connection, merged: ProfileKey[]): Promise<MergePair[]> {
  const { rows } = await tx.query<MergePair>({
    name: 'find-kept',
    text: findKeptStatement,
    values: keyValues(merged),
  });
  return rows;
}

/**
 * Marks profiles that were merged into deleted ones as deleted, so that their data is erased too, and deletes the refused
 * objects of their former external ids. Uses the
 * primary key of removed_profiles and merged_profiles_kept. One call goes one step down the merges, with up
 * to $3 profiles each; the next call continues with those. Sorted, so that two workers lock in the same
 * order.
 */
const spreadDeletesStatement = withCitusForm(`
  with found as materialized (
    select hit.workspace_id, hit.profile_id, hit.external_id
    from ${keysTable}
    join removed_profiles
      on removed_profiles.workspace_id = wanted.workspace_id
      and removed_profiles.profile_id = wanted.id
      and removed_profiles.fate = 'deleted'
    cross join lateral (
      select merged_profiles.workspace_id, merged_profiles.profile_id, merged_profiles.external_id
      from merged_profiles
      where merged_profiles.workspace_id = wanted.workspace_id
        and merged_profiles.kept_id = wanted.id
      limit $3
    ) as hit
  ), names as materialized (
    select found.workspace_id, ${nameOfText('found.workspace_id', "'x:' || found.external_id")} as name
    from found
    where found.external_id is not null
    union all
    select found.workspace_id, ${nameOfText('found.workspace_id', "'s:' || found.profile_id")}
    from found
  ), refused_gone as (
    delete from refused_of_users using names
    where refused_of_users.workspace_id = names.workspace_id and refused_of_users.name = names.name
  ), references_gone as (
    delete from merged_profiles using found
    where merged_profiles.workspace_id = found.workspace_id
      and merged_profiles.profile_id = found.profile_id
  )
  insert into removed_profiles (workspace_id, profile_id, fate, removed_at)
  select found.workspace_id, found.profile_id, 'deleted', now()
  from found
  order by found.workspace_id, found.profile_id
  on conflict (workspace_id, profile_id) do update set fate = 'deleted'`);

/** Spreads deletes to merged profiles. @returns the number of profiles that are now marked as deleted */
export async function spreadDeletes(pool: Pool, keys: ProfileKey[], ofEach: number): Promise<number> {
  const values = [...keyValues(keys), ofEach];
  const { rowCount } = await pool.query({ name: 'spread-deletes', text: spreadDeletesStatement, values });
  return rowCount ?? 0;
}

const hasNone = (table: string, owned: string) => `
      and (select 1 from ${table} where ${table}.workspace_id = wanted.workspace_id and ${owned} limit 1) is null`;

/** Conditions that no dead letter and no failed warehouse row waits for the profile. */
const noFailures = [
  hasNone('named_failures', "named_failures.name = 'u:' || wanted.id"),
  `
      and (
        select 1 from left_names
        where left_names.owner_id = wanted.id and left_names.workspace_id is not distinct from wanted.workspace_id
        limit 1) is null`,
];

/**
 * Conditions that apply only to deleted profiles. Rows of a merged profile belong to the kept profile by
 * reference.
 */
const noDeletedData = [
  hasNone('events', 'events.profile_id = wanted.id'),
  hasNone('purchases', 'purchases.profile_id = wanted.id'),
  hasNone('merged_profiles', 'merged_profiles.kept_id = wanted.id'),
];

/**
 * Reads by primary key and the profile indexes of all tables that may have remaining rows. All transactions
 * that found the profiles before their removal have ended, so no row can be added after this check.
 */
const statementOf = (fate: Tombstone['fate']) => `
  with settled as materialized (
    select wanted.workspace_id, wanted.id
    from ${keysTable}
    where true${[...dependents.names, ...dependents.belongings]
      .map(({ table, owned }) => hasNone(table, owned))
      .join('')}${noFailures.join('')}${fate === 'deleted' ? noDeletedData.join('') : ''}
  )${
    fate === 'deleted'
      ? `, references_gone as (
    delete from merged_profiles using settled
    where merged_profiles.workspace_id = settled.workspace_id
      and merged_profiles.profile_id = settled.id
  ), noted_archives as (
    insert into archive_erasures (workspace_id, since, latest)
    select distinct settled.workspace_id, now(), now()
    from settled
    where (
      select 1 from archive_files
      where archive_files.workspace_id = settled.workspace_id and archive_files.object is not null limit 1) is not null
    order by 1
    on conflict (workspace_id) do update set latest = greatest(archive_erasures.latest, excluded.latest)
  ), logged as materialized (
    select
      settled.workspace_id, 'profile' as kind, settled.id::text as subject, null::bigint as up_to,
      null::timestamptz as dropped_at
    from settled
    where (
      select 1 from stream_log where stream_log.workspace_id = settled.workspace_id limit 1) is not null
  ), ${requestErasures('logged')}`
      : ''
  }
  delete from removed_profiles using settled
  where removed_profiles.workspace_id = settled.workspace_id
    and removed_profiles.profile_id = settled.id`;

const statements = {
  merged: withCitusForm(statementOf('merged')),
  deleted: withCitusForm(statementOf('deleted')),
};

/**
 * Deletes those of the tombstones whose work is done. All must have the same fate. Deleted profiles are
 * recorded for the archive and the stream log of their workspace. Exports and archive runs that begin later
 * read tables without rows of these profiles.
 *
 * @returns the number of deleted tombstones
 */
export async function dropSettled(
  tx: Connection,
  tombstones: Tombstone[],
  fate: Tombstone['fate'],
): Promise<number> {
  const { rowCount } = await tx.query({
    name: `finish-${fate}`,
    text: statements[fate],
    values: keyValues(tombstones),
  });
  return rowCount ?? 0;
}
