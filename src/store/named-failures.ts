import type { Connection, Pool } from './database.ts';
import { keysTable, keyValues, type MergePair, type ProfileKey, pairsTable, pairValues } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';

/**
 * CTEs that assign dead letters and failed rows to a kept user. The input `slice` has the columns place, old
 * and kept_id. The object at each place gets the name of the kept user and loses the old name, if there is
 * one. Dead letters are locked in id order, as in every statement on them, and failed rows in the order of
 * their places. A row that another worker has changed in the meantime is read again.
 */
const renameFailures = `
  changes as materialized (
    select slice.workspace_id, slice.place, array_agg(distinct 'u:' || slice.kept_id) as added,
      coalesce(array_agg(distinct slice.old) filter (where slice.old is not null), '{}') as dropped
    from slice
    group by slice.workspace_id, slice.place
  ), letters as materialized (
    select dead_letters.workspace_id, dead_letters.id, changes.added, changes.dropped
    from changes
    join dead_letters
      on dead_letters.place = changes.place and dead_letters.workspace_id is not distinct from changes.workspace_id
    order by dead_letters.id
    for update of dead_letters
  ), letters_renamed as (
    update dead_letters set identifiers = array(
      select distinct named.name
      from unnest(dead_letters.identifiers || letters.added) as named (name)
      where named.name <> all(letters.dropped))
    from letters
    where dead_letters.id = letters.id and dead_letters.workspace_id is not distinct from letters.workspace_id
    returning 1
  ), failed_rows as materialized (
    select sync_row_errors.workspace_id, sync_row_errors.place, changes.added, changes.dropped
    from changes
    join sync_row_errors
      on sync_row_errors.place = changes.place and sync_row_errors.workspace_id is not distinct from changes.workspace_id
    order by sync_row_errors.place
    for update of sync_row_errors
  ), rows_renamed as (
    update sync_row_errors set identifiers = array(
      select distinct named.name
      from unnest(sync_row_errors.identifiers || failed_rows.added) as named (name)
      where named.name <> all(failed_rows.dropped))
    from failed_rows
    where sync_row_errors.place = failed_rows.place and sync_row_errors.workspace_id is not distinct from failed_rows.workspace_id
    returning 1
  )`;

/** Reads by primary key and the unique indexes on places: up to $4 objects of each merged profile. */
const owned = `
  with slice as materialized (
    select pairs.workspace_id, hit.place, 'u:' || pairs.merged_id as old, pairs.kept_id
    from ${pairsTable}
    cross join lateral (
      select named_failures.place
      from named_failures
      where named_failures.workspace_id = pairs.workspace_id and named_failures.name = 'u:' || pairs.merged_id
      limit $4
    ) as hit
  ), ${renameFailures}
  select ((select count(*) from letters_renamed) + (select count(*) from rows_renamed))::integer as brought`;

/**
 * Reads by primary key, left_names_owner and the unique indexes on places: up to $4 objects of each merged
 * profile, in the order of their names and places, so that the next call continues after the last one.
 */
const named = `
  with slice as materialized (
    select hit.workspace_id, hit.name, hit.owner_id, hit.place, null::text as old, pairs.kept_id
    from ${pairsTable}
    cross join lateral (
      select left_names.workspace_id, left_names.name, left_names.owner_id, found.place
      from left_names
      cross join lateral (
        select named_failures.place
        from named_failures
        where named_failures.workspace_id = left_names.workspace_id
          and named_failures.name = left_names.name
          and named_failures.place > left_names.after
          and named_failures.place <= left_names.up_to
        order by named_failures.place
        limit $4
      ) as found
      where left_names.owner_id = pairs.merged_id and left_names.workspace_id is not distinct from pairs.workspace_id
      limit $4
    ) as hit
  ), ${renameFailures}, moved_on as (
    update left_names set after = reached.place
    from (
      select slice.workspace_id, slice.name, slice.owner_id, max(slice.place) as place
      from slice
      group by slice.workspace_id, slice.name, slice.owner_id
    ) as reached
    where left_names.workspace_id = reached.workspace_id
      and left_names.name = reached.name
      and left_names.owner_id is not distinct from reached.owner_id
  )
  select ((select count(*) from letters_renamed) + (select count(*) from rows_renamed))::integer as brought`;

const statements = { owned: withCitusForm(owned), named: withCitusForm(named) };

/**
 * Assigns a slice of the dead letters and failed rows of merged users to the kept users. `owned`: objects
 * that belonged to the merged user when they failed. `named`: other objects with one of the names that the
 * user had at the merge.
 *
 * @returns the number of objects
 */
export async function bringFailures(
  tx: Connection,
  pairs: MergePair[],
  { which, rowsOfEach }: { which: keyof typeof statements; rowsOfEach: number },
): Promise<number> {
  const { rows } = await tx.query<{ brought: number }>({
    name: `bring-${which}-failures`,
    text: statements[which],
    values: [...pairValues(pairs), rowsOfEach],
  });
  return rows[0]!.brought;
}

/**
 * Deletes a slice of the objects that wait for each profile, up to $3 objects, by primary keys and the unique
 * indexes on places. Dead letters are locked in id order, as in every statement on them, and failed rows in
 * the order of their places.
 */
const eraseStatement = withCitusForm(`
  with wanted as materialized (
    select * from ${keysTable}
  ), slice as materialized (
    select distinct wanted.workspace_id, hit.place
    from wanted
    cross join lateral (
      select due.place
      from (
        select mine.place
        from (
          select named_failures.place
          from named_failures
          where named_failures.workspace_id = wanted.workspace_id and named_failures.name = 'u:' || wanted.id
          limit $3
        ) as mine
        union all
        select found.place
        from left_names
        cross join lateral (
          select named_failures.place
          from named_failures
          where named_failures.workspace_id = left_names.workspace_id
            and named_failures.name = left_names.name
            and named_failures.place <= left_names.up_to
          limit $3
        ) as found
        where left_names.owner_id = wanted.id and left_names.workspace_id is not distinct from wanted.workspace_id
      ) as due
      limit $3
    ) as hit
  ), letters as materialized (
    select dead_letters.workspace_id, dead_letters.id
    from slice
    join dead_letters
      on dead_letters.place = slice.place and dead_letters.workspace_id is not distinct from slice.workspace_id
    order by dead_letters.id
    for update of dead_letters
  ), letters_gone as (
    delete from dead_letters using letters
    where dead_letters.id = letters.id and dead_letters.workspace_id is not distinct from letters.workspace_id
    returning 1
  ), failed_rows as materialized (
    select sync_row_errors.workspace_id, sync_row_errors.place
    from slice
    join sync_row_errors
      on sync_row_errors.place = slice.place and sync_row_errors.workspace_id is not distinct from slice.workspace_id
    order by sync_row_errors.place
    for update of sync_row_errors
  ), rows_gone as (
    delete from sync_row_errors using failed_rows
    where sync_row_errors.place = failed_rows.place and sync_row_errors.workspace_id is not distinct from failed_rows.workspace_id
    returning 1
  )
  select ((select count(*) from letters_gone) + (select count(*) from rows_gone))::integer as gone`);

/**
 * Erases a slice of the dead letters and failed rows of deleted users. Readers no longer see them.
 *
 * @returns the number of objects
 */
export async function eraseFailures(tx: Connection, keys: ProfileKey[], rowsOfEach: number): Promise<number> {
  const { rows } = await tx.query<{ gone: number }>({
    name: 'erase-failures',
    text: eraseStatement,
    values: [...keyValues(keys), rowsOfEach],
  });
  return rows[0]!.gone;
}

/**
 * Reads the last places under each name by the primary key of named_failures, and the unique index on places.
 * A name may have belonged to another user before. Such objects are included, because a delete of the user
 * also removes them.
 */
const selectLettersOfUserStatement = withCitusForm(`
  select letters.id, letters.kind, letters.reason, letters.state, letters.failed_at as "failedAt",
    places.place::text as place
  from (
    select distinct named.place
    from unnest($2::text[]) as names (name)
    cross join lateral (
      select named_failures.place
      from named_failures
      where named_failures.workspace_id = $1::uuid and named_failures.name = names.name
        and named_failures.place < $4::bigint
      order by named_failures.workspace_id desc, named_failures.name desc, named_failures.place desc
      limit 2 * $3::integer
    ) as named
  ) as places
  cross join lateral (
    select dead_letters.id
    from dead_letters
    where dead_letters.workspace_id = $1::uuid and dead_letters.place = places.place
    limit 1
  ) as placed
  cross join lateral (
    select *
    from kept_dead_letters
    where kept_dead_letters.workspace_id = $1::uuid and kept_dead_letters.id = placed.id
    limit 1
  ) as letters
  order by places.place desc
  limit $3::integer`);

/** A dead letter that names a user. */
export interface LetterOfUser {
  id: string;
  kind: string;
  reason: string;
  state: string;
  failedAt: Date;
  /** Position in the order in which dead letters were written. A page continues after this value. */
  place: string;
}

/** Larger than every place. */
const LAST_PLACE = '9223372036854775807';

/**
 * Returns dead letters with these names, most recent first. Names have the format of `identifierText`, or
 * `u:` followed by the profile's id.
 */
export async function selectDeadLettersOfUser(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { names, before = LAST_PLACE, limit }: { names: string[]; before?: string | undefined; limit: number },
): Promise<LetterOfUser[]> {
  const { rows } = await pool.query<LetterOfUser>({
    name: 'select-letters-of-user',
    text: selectLettersOfUserStatement,
    values: [workspaceId, names, limit, before],
  });
  return rows;
}
