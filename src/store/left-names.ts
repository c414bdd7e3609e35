import { type Identifier, identifierText } from '../profile/identifier.ts';
import { uuidArray } from './arrays.ts';
import type { Connection } from './database.ts';
import { keysTable, keyValues, type MergePair, type ProfileKey, pairsTable, pairValues } from './merges.ts';
import { withCitusForm } from './one-workspace.ts';
import { nameOfText } from './refused-of-users.ts';

/**
 * Names (identifiers) of merged or deleted users that dead letters and failed warehouse rows wait for. Since
 * there may be very many, the transaction only records the names in `left_names`. A background job
 * (named-failures.ts) then processes the waiting objects.
 */

/**
 * Returns SQL for the names that belong to the profiles alone, with their owner. External ids are compared
 * bytewise. The index on names uses another collation and would not be used.
 *
 * @param from a table with the columns workspace_id, id, external_id and owner_id
 */
const namesOfProfile = (from: string) => `
    select ${from}.workspace_id, ${from}.owner_id, 's:' || ${from}.id as name
    from ${from}
    union
    select ${from}.workspace_id, ${from}.owner_id, 'x:' || ${from}.external_id
    from ${from}
    where ${from}.external_id is not null
    union
    select ${from}.workspace_id, ${from}.owner_id, 'x:' || deprecated.external_id
    from ${from}
    join deprecated_external_ids as deprecated
      on deprecated.workspace_id = ${from}.workspace_id and deprecated.profile_id = ${from}.id
    union
    select ${from}.workspace_id, ${from}.owner_id,
      'a:' || octet_length(aliases.alias_label) || ':' || aliases.alias_label || aliases.alias_name
    from ${from}
    join user_aliases as aliases
      on aliases.workspace_id = ${from}.workspace_id and aliases.profile_id = ${from}.id`;

/** SQL condition that an object waits for a name: one lookup in the primary key. */
const hasFailures = (names: string) => `(
      select 1 from named_failures
      where named_failures.workspace_id = ${names}.workspace_id and named_failures.name = ${names}.name
      limit 1) is not null`;

/** SQL of the last place assigned to a failure. Objects with a later place were accepted later. */
const lastFailure = "pg_sequence_last_value('failure_places')";

/**
 * Records the names of deleted users for which dead letters or failed warehouse rows wait, and deletes their refused
 * objects: at most 31 rows per name. Uses primary keys
 * and the profile indexes of the tables that it reads. The names are those of the profiles and those in the
 * delete requests. An address is recorded only if no other profile has it. A name that belongs to no profile
 * gets the id of a fictitious deleted user, so that all waiting objects are erased in the same way.
 *
 * The limits keep the planner from scanning a whole table or workspace.
 */
const forgetDeadLettersStatement = withCitusForm(`
  with wanted as materialized (
    select wanted.workspace_id, wanted.id, wanted.id as owner_id, profile.external_id, profile.email, profile.phone
    from unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)
    cross join lateral (
      select profiles.external_id, profiles.email, case when profiles.phone_valid then profiles.phone end as phone
      from profiles
      where profiles.workspace_id = wanted.workspace_id and profiles.id = wanted.id
      limit 1
    ) as profile
  ), own as materialized (
    ${namesOfProfile('wanted')}
    union
    select wanted.workspace_id, wanted.owner_id, 'e:' || wanted.email
    from wanted
    where wanted.email is not null
    union
    select wanted.workspace_id, wanted.owner_id, 'p:' || wanted.phone
    from wanted
    where wanted.phone is not null
  ), named as materialized (
    select named.workspace_id, named.name
    from unnest($3::uuid[], $4::text[]) as named (workspace_id, name)
    except
    select own.workspace_id, own.name from own
  ), names as materialized (
    select own.workspace_id, own.owner_id, own.name, substr(own.name, 3) as address, true as is_own from own
    union all
    select named.workspace_id, gen_random_uuid(), named.name, substr(named.name, 3), false from named
  ), alone as materialized (
    select names.workspace_id, names.owner_id, names.name, names.is_own
    from names
    where (
        select 1 from profiles as others
        where names.name like 'e:%'
          and others.workspace_id = names.workspace_id
          and others.email = names.address
          and (others.workspace_id, others.id) not in (select wanted.workspace_id, wanted.id from wanted)
        limit 1) is null
      and (
        select 1 from profiles as others
        where names.name like 'p:%'
          and others.workspace_id = names.workspace_id
          and others.phone = names.address
          and others.phone_valid
          and (others.workspace_id, others.id) not in (select wanted.workspace_id, wanted.id from wanted)
        limit 1) is null
  ), refused_gone as (
    delete from refused_of_users using alone
    where refused_of_users.workspace_id = alone.workspace_id and refused_of_users.name = ${nameOfText('alone.workspace_id', 'alone.name')}
  ), left_behind as materialized (
    select alone.workspace_id, alone.owner_id, alone.name, alone.is_own
    from alone
    where ${hasFailures('alone')}
  ), nobody as (
    insert into removed_profiles (workspace_id, profile_id, fate, removed_at)
    select left_behind.workspace_id, left_behind.owner_id, 'deleted', $5::timestamptz
    from left_behind
    where not left_behind.is_own
  )
  insert into left_names (workspace_id, name, owner_id, up_to)
  select left_behind.workspace_id, left_behind.name, left_behind.owner_id, ${lastFailure}
  from left_behind`);

/**
 * Deletes refused objects of deleted users, and hides all objects that wait for them, so that data accepted before a delete never returns after
 * it, including from dead letters. A background job erases the objects. Call it before the profiles are
 * deleted.
 *
 * @param named identifiers in the delete requests, whether a profile has them or not
 */
export async function forgetDeadLetters(
  tx: Connection,
  { keys, named }: { keys: ProfileKey[]; named: { workspaceId: string; identifier: Identifier }[] },
  now: string,
): Promise<void> {
  await tx.query({
    name: 'forget-dead-letters',
    text: forgetDeadLettersStatement,
    values: [
      ...keyValues(keys),
      uuidArray(named, ({ workspaceId }) => workspaceId),
      named.map(({ identifier }) => identifierText(identifier)),
      now,
    ],
  });
}

/**
 * Reads by primary keys and the profile indexes of the tables that it uses. The limit keeps the planner from
 * scanning a whole workspace.
 */
const handOverDeadLettersStatement = withCitusForm(`
  with wanted as materialized (
    select pairs.workspace_id, pairs.merged_id as id, pairs.merged_id as owner_id, profile.external_id
    from ${pairsTable}
    cross join lateral (
      select profiles.external_id
      from profiles
      where profiles.workspace_id = pairs.workspace_id and profiles.id = pairs.merged_id
      limit 1
    ) as profile
  ), names as materialized (
    ${namesOfProfile('wanted')}
  )
  insert into left_names (workspace_id, name, owner_id, up_to)
  select names.workspace_id, names.name, names.owner_id, ${lastFailure}
  from names
  where ${hasFailures('names')}`);

/**
 * Assigns the objects that wait for a merged user to the kept user as well, so that a delete of the kept user
 * finds them. A background job moves them; until then they are found through the merge record. Call it while
 * the merged profiles still have their names.
 */
export async function handOverDeadLetters(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({
    name: 'hand-over-dead-letters',
    text: handOverDeadLettersStatement,
    values: pairValues(pairs),
  });
}

/**
 * Deletes up to $3 names per profile for which no object waits, by left_names_owner and the primary key.
 * Comparisons that no index supports leave the planner only one access path each.
 */
const deleteNamesStatement = withCitusForm(`
  with done as materialized (
    select hit.workspace_id, hit.name, hit.owner_id
    from ${keysTable}
    cross join lateral (
      select left_names.workspace_id, left_names.name, left_names.owner_id
      from left_names
      where left_names.owner_id = wanted.id
        and left_names.workspace_id is not distinct from wanted.workspace_id
        and (
          select 1 from named_failures
          where named_failures.workspace_id = left_names.workspace_id
            and named_failures.name = left_names.name
            and named_failures.place > left_names.after
            and named_failures.place <= left_names.up_to
          limit 1) is null
      limit $3
    ) as hit
  )
  delete from left_names using done
  where left_names.workspace_id = done.workspace_id
    and left_names.name = done.name
    and left_names.owner_id is not distinct from done.owner_id`);

/**
 * Deletes the names of removed profiles whose waiting objects are all processed.
 *
 * @returns the number of deleted names
 */
export async function removeNames(tx: Connection, keys: ProfileKey[], namesOfEach: number): Promise<number> {
  const values = [...keyValues(keys), namesOfEach];
  const { rowCount } = await tx.query({ name: 'strike-off-names', text: deleteNamesStatement, values });
  return rowCount ?? 0;
}
