import type { DeprecatedExternalId, NewAlias } from './alternate-identifiers.ts';
import { uuidArray } from './arrays.ts';
import type { Connection, Pool } from './database.ts';
import { isDistributed, WORKSPACES } from './distributed.ts';
import { keysTable, keyValues, type ProfileKey } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';

/**
 * A table with rows that belong to profiles: its key columns apart from the workspace, and the condition for
 * rows of a profile.
 */
interface Dependent {
  table: string;
  key: string[];
  owned: string;
}

const byProfile = (table: string, ...key: string[]): Dependent => ({
  table,
  key,
  owned: `${table}.profile_id = wanted.id`,
});

const bySubject = (table: string, ...key: string[]): Dependent => ({
  table,
  key: ['subject_kind', 'subject', ...key],
  owned: `${table}.subject_kind = 'profile' and ${table}.subject = wanted.id::text`,
});

/** Tables whose rows are erased after a merge and after a delete. */
const names = [
  byProfile('user_aliases', 'profile_id', 'alias_label'),
  byProfile('deprecated_external_ids', 'external_id'),
  byProfile('app_summaries', 'profile_id', 'app_id'),
  bySubject('subscription_states', 'subscription_group_id'),
  bySubject('subscription_history', 'subscription', 'id'),
];

/** Tables whose rows a merge moves to the kept profile. */
const belongings = [
  byProfile('event_summaries', 'profile_id', 'name'),
  byProfile('purchase_summaries', 'profile_id', 'product_id', 'currency'),
  byProfile('push_tokens', 'app_id', 'token'),
];

export const dependents = { names, belongings };

/** Deletes up to $3 rows per table and profile, by the profile indexes and then by primary key. */
const statementOf = (tables: Dependent[]) => `
  with wanted as (
    select * from ${keysTable}
  ),
  ${tables
    .map(
      ({ table, key, owned }) => `${table}_slice as materialized (
    select hit.*
    from wanted
    cross join lateral (
      select ${['workspace_id', ...key].map((column) => `${table}.${column}`).join(', ')}
      from ${table}
      where ${table}.workspace_id = wanted.workspace_id and ${owned}
      limit $3
    ) as hit
  ), ${table}_gone as (
    delete from ${table} using ${table}_slice as slice
    where ${['workspace_id', ...key].map((column) => `${table}.${column} = slice.${column}`).join(' and ')}
    returning 1
  )`,
    )
    .join(',\n  ')}
  select (${tables.map(({ table }) => `(select count(*) from ${table}_gone)`).join(' + ')})::integer as gone`;

const statements = {
  names: withCitusForm(statementOf(names)),
  belongings: withCitusForm(statementOf(belongings)),
};

/**
 * Erases a slice of the rows of removed profiles. Remaining rows have no effect, because they are only read
 * through their profile.
 *
 * @returns the number of erased rows
 */
export async function eraseSlice(
  tx: Connection,
  what: keyof typeof dependents,
  { keys, rowsOfEach }: { keys: ProfileKey[]; rowsOfEach: number },
): Promise<number> {
  const { rows } = await tx.query<{ gone: number }>({
    name: `erase-${what}`,
    text: statements[what],
    values: [...keyValues(keys), rowsOfEach],
  });
  return rows[0]!.gone;
}

/** Tables in which one profile may have very many rows. */
export type ActivityTable = 'events' | 'purchases';

/**
 * Reads the profile's part of the primary key, then deletes by the whole key. Without the profile in the
 * condition, each row would need a scan.
 */
const eraseActivityStatement = (table: ActivityTable) =>
  withCitusForm(`
  with slice as materialized (
    select ${table}.workspace_id, ${table}.profile_id, ${table}.id
    from ${keysTable}
    join ${table}
      on ${table}.workspace_id = wanted.workspace_id
      and ${table}.profile_id = wanted.id
    limit $3
  )
  delete from ${table} using slice
  where ${table}.workspace_id = slice.workspace_id
    and ${table}.profile_id = slice.profile_id
    and ${table}.id = slice.id`);

const activityStatements = {
  events: eraseActivityStatement('events'),
  purchases: eraseActivityStatement('purchases'),
};

/** Erases up to `limit` rows of the profiles and returns their number. */
export async function eraseActivity(
  tx: Connection,
  table: ActivityTable,
  { keys, limit }: { keys: ProfileKey[]; limit: number },
): Promise<number> {
  const { rowCount } = await tx.query({
    name: `erase-${table}`,
    text: activityStatements[table],
    values: [...keyValues(keys), limit],
  });
  return rowCount ?? 0;
}

/**
 * Deletes a slice of the first dropped history, in table order, that no other worker has locked. Uses primary
 * keys. The last slice also deletes the record of the drop. The statement has no name, so it is planned each
 * time for the current size of the table.
 */
const eraseStatement = (own: string) => `
  with dropped as materialized (
    select dropped_histories.workspace_id, dropped_histories.subject_kind, dropped_histories.subject,
      dropped_histories.up_to
    from dropped_histories ${own}
    order by dropped_histories.workspace_id, dropped_histories.subject_kind, dropped_histories.subject
    limit 1
    for update skip locked
  ), slice as materialized (
    select hit.*
    from dropped
    cross join lateral (
      select
        subscription_history.workspace_id, subscription_history.subject_kind, subscription_history.subject,
        subscription_history.subscription, subscription_history.id
      from subscription_history
      where subscription_history.workspace_id = dropped.workspace_id
        and subscription_history.subject_kind = dropped.subject_kind
        and subscription_history.subject = dropped.subject
        and subscription_history.id <= dropped.up_to
      limit $1
    ) as hit
  ), gone as (
    delete from subscription_history using slice
    where subscription_history.workspace_id = slice.workspace_id
      and subscription_history.subject_kind = slice.subject_kind
      and subscription_history.subject = slice.subject
      and subscription_history.subscription = slice.subscription
      and subscription_history.id = slice.id
  ), finished as (
    delete from dropped_histories using dropped
    where dropped_histories.workspace_id = dropped.workspace_id
      and dropped_histories.subject_kind = dropped.subject_kind
      and dropped_histories.subject = dropped.subject
      and (select count(*) from slice) < $1
  )
  select from dropped`;

const eraseHistoriesStatement = eraseStatement('');
const eraseHistoriesOfStatement = eraseStatement('where dropped_histories.workspace_id = $2::uuid');

/** The table has one row per long history that is being erased. */
const ownersOfHistoriesStatement = `
  select distinct dropped_histories.workspace_id as id
  from dropped_histories
  order by dropped_histories.workspace_id
  limit ${WORKSPACES}`;

async function eraseHistoriesByWorkspace(pool: Pool, limit: number): Promise<boolean> {
  const { rows } = await pool.query<{ id: string }>(ownersOfHistoriesStatement);
  let erased = 0;
  for (const { id } of rows)
    erased += (await pool.query({ text: eraseHistoriesOfStatement, values: [limit, id] })).rowCount ?? 0;
  return erased !== 0;
}

/**
 * Erases a slice of a dropped history.
 *
 * @returns false if there is none left, except those that other workers have locked
 */
export async function eraseHistories(pool: Pool, limit: number): Promise<boolean> {
  if (await isDistributed(pool)) return eraseHistoriesByWorkspace(pool, limit);
  const { rowCount } = await pool.query({ text: eraseHistoriesStatement, values: [limit] });
  return rowCount !== 0;
}

/**
 * Inserts by primary key. Profiles that were merged into these are marked in the background, see
 * `spreadDeletes`.
 */
const recordDeletesStatement = withCitusForm(`
  insert into removed_profiles (workspace_id, profile_id, fate, removed_at)
  select wanted.workspace_id, wanted.id, 'deleted', $3::timestamptz
  from ${keysTable}
  order by wanted.workspace_id, wanted.id
  on conflict (workspace_id, profile_id) do update set fate = 'deleted'`);

/** Requests the erasure of all data of the profiles. */
export async function recordDeletes(tx: Connection, keys: ProfileKey[], now: string): Promise<void> {
  await tx.query({ name: 'record-deletes', text: recordDeletesStatement, values: [...keyValues(keys), now] });
}

/** Deletes by the primary keys of user_aliases and profiles. */
const freeAliasesStatement = withCitusForm(`
  delete from user_aliases
  using unnest($1::uuid[], $2::text[], $3::text[]) as given (workspace_id, alias_label, alias_name)
  where user_aliases.workspace_id = given.workspace_id
    and user_aliases.alias_label = given.alias_label
    and user_aliases.alias_name = given.alias_name
    and (
      select 1 from profiles
      where profiles.workspace_id = user_aliases.workspace_id and profiles.id = user_aliases.profile_id
      limit 1) is null`);

/** Deletes by the primary keys of deprecated_external_ids and profiles. */
const freeExternalIdsStatement = withCitusForm(`
  delete from deprecated_external_ids
  using unnest($1::uuid[], $2::text[]) as given (workspace_id, external_id)
  where deprecated_external_ids.workspace_id = given.workspace_id
    and deprecated_external_ids.external_id = given.external_id
    and (
      select 1 from profiles
      where profiles.workspace_id = deprecated_external_ids.workspace_id
        and profiles.id = deprecated_external_ids.profile_id
      limit 1) is null`);

/**
 * Deletes aliases of removed profiles that are about to be assigned again. Such an alias names no user but
 * may exist until the cleanup is complete.
 */
export async function freeAliases(
  tx: Connection,
  given: Pick<NewAlias, 'workspaceId' | 'aliasLabel' | 'aliasName'>[],
): Promise<void> {
  await tx.query({
    name: 'free-aliases',
    text: freeAliasesStatement,
    values: [
      uuidArray(given, (row) => row.workspaceId),
      given.map((row) => row.aliasLabel),
      given.map((row) => row.aliasName),
    ],
  });
}

/** Does the same for deprecated external ids. */
export async function freeExternalIds(
  tx: Connection,
  given: Pick<DeprecatedExternalId, 'workspaceId' | 'externalId'>[],
): Promise<void> {
  await tx.query({
    name: 'free-external-ids',
    text: freeExternalIdsStatement,
    values: [uuidArray(given, (row) => row.workspaceId), given.map((row) => row.externalId)],
  });
}
