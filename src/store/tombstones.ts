import { NIL_UUID } from '../platform/ids.ts';
import type { Connection, Pool } from './database.ts';
import { dependents } from './erasures.ts';
import { keysTable, keyValues, type MergePair, type ProfileKey } from './merges.ts';
import { requestErasures } from './stream-erasures.ts';

/** The tombstone of a profile: it is gone, and something is left to be done for it. */
export interface Tombstone {
  workspaceId: string;
  id: string;
  /** `merged`: sums that came late are brought to who took it in. `deleted`: what it did is erased. */
  fate: 'merged' | 'deleted';
}

/** In the order of the primary key; the table holds what is left to do, and nothing else. */
const selectTombstonesStatement = `
  select removed_profiles.workspace_id as "workspaceId", removed_profiles.profile_id as id
  from removed_profiles
  where (removed_profiles.workspace_id, removed_profiles.profile_id) > ($2::uuid, $3::uuid)
  order by removed_profiles.workspace_id, removed_profiles.profile_id
  limit $1`;

/**
 * Tombstones: profiles that are gone and have something left to be done for them.
 *
 * @param after the cursor: the last one of the page before; absent: from the start
 */
export async function selectTombstones(pool: Pool, limit: number, after?: ProfileKey): Promise<ProfileKey[]> {
  const { rows } = await pool.query<ProfileKey>({
    name: 'select-tombstones',
    text: selectTombstonesStatement,
    values: [limit, after?.workspaceId ?? NIL_UUID, after?.id ?? NIL_UUID],
  });
  return rows;
}

/** By primary key. What another worker has in hand is left to it. */
const lockTombstonesStatement = `
  select removed_profiles.workspace_id as "workspaceId", removed_profiles.profile_id as id, removed_profiles.fate
  from ${keysTable}
  join removed_profiles
    on removed_profiles.workspace_id = wanted.workspace_id
    and removed_profiles.profile_id = wanted.id
  for update of removed_profiles skip locked`;

/**
 * Takes tombstones in hand until the transaction ends. Its statements are planned anew each time: a plan that was
 * made while a table was nearly empty would go through all of it for each row of a slice.
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

/** By the primary keys of merged_profiles and profiles: follows each merge to its end. */
const findKeptStatement = `
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
  where chain.moved`;

/** Whom merged profiles belong to now; those whose last owner is gone as well are missing. */
export async function findKept(tx: Connection, merged: ProfileKey[]): Promise<MergePair[]> {
  const { rows } = await tx.query<MergePair>({
    name: 'find-kept',
    text: findKeptStatement,
    values: keyValues(merged),
  });
  return rows;
}

/**
 * By the primary key of removed_profiles and merged_profiles_kept: what those did whom a deleted profile has taken in is
 * erased with it. One step down the merges, at most $3 of each profile; those found are deleted ones at the next
 * step. Sorted, so that two workers lock in one order.
 */
const spreadDeletesStatement = `
  with found as materialized (
    select hit.workspace_id, hit.profile_id
    from ${keysTable}
    join removed_profiles
      on removed_profiles.workspace_id = wanted.workspace_id
      and removed_profiles.profile_id = wanted.id
      and removed_profiles.fate = 'deleted'
    cross join lateral (
      select merged_profiles.workspace_id, merged_profiles.profile_id
      from merged_profiles
      where merged_profiles.workspace_id = wanted.workspace_id
        and merged_profiles.kept_id = wanted.id
      limit $3
    ) as hit
  ), references_gone as (
    delete from merged_profiles using found
    where merged_profiles.workspace_id = found.workspace_id
      and merged_profiles.profile_id = found.profile_id
  )
  insert into removed_profiles (workspace_id, profile_id, fate, removed_at)
  select found.workspace_id, found.profile_id, 'deleted', now()
  from found
  order by found.workspace_id, found.profile_id
  on conflict (workspace_id, profile_id) do update set fate = 'deleted'`;

/** @returns how many profiles are to be erased with the deleted ones among the given */
export async function spreadDeletes(pool: Pool, keys: ProfileKey[], ofEach: number): Promise<number> {
  const values = [...keyValues(keys), ofEach];
  const { rowCount } = await pool.query({ name: 'spread-deletes', text: spreadDeletesStatement, values });
  return rowCount ?? 0;
}

const none = (table: string, owned: string) => `
      and (select 1 from ${table} where ${table}.workspace_id = wanted.workspace_id and ${owned} limit 1) is null`;

/** What waits for a profile among the dead letters and the failed rows of warehouses. */
const ofFailures = [
  none('named_failures', "named_failures.name = 'u:' || wanted.id"),
  `
      and (
        select 1 from left_names
        where left_names.owner_id = wanted.id and left_names.workspace_id is not distinct from wanted.workspace_id
        limit 1) is null`,
];

/** What a deleted profile leaves behind besides. A merged one's is its keeper's by reference. */
const ofDeleted = [
  none('events', 'events.profile_id = wanted.id'),
  none('purchases', 'purchases.profile_id = wanted.id'),
  none('merged_profiles', 'merged_profiles.kept_id = wanted.id'),
];

/**
 * By primary key, and the indexes on profiles of all tables in which something may be left. Every transaction that has
 * found the profiles before they were removed has ended: nothing comes after this look.
 */
const statementOf = (fate: Tombstone['fate']) => `
  with settled as materialized (
    select wanted.workspace_id, wanted.id
    from ${keysTable}
    where true${[...dependents.names, ...dependents.belongings]
      .map(({ table, owned }) => none(table, owned))
      .join('')}${ofFailures.join('')}${fate === 'deleted' ? ofDeleted.join('') : ''}
  )${
    fate === 'deleted'
      ? `, references_gone as (
    delete from merged_profiles using settled
    where merged_profiles.workspace_id = settled.workspace_id
      and merged_profiles.profile_id = settled.id
  ), told as (
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

const statements = { merged: statementOf('merged'), deleted: statementOf('deleted') };

/**
 * Drops those of the tombstones, all of one fate, for which nothing is left to do. Deleted ones are noted for the archive
 * and the log of streams of their workspace: what is begun later reads tables in which they have no rows.
 *
 * @returns how many they were
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
