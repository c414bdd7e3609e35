import type { Connection } from '../database.ts';
import { type MergePair, pairsTable, pairValues } from './pair.ts';

/**
 * By the index dead_letters_identifiers. The limits, and the offset, keep the planner from reading a whole table or
 * workspace instead.
 */
const statement = `
  with wanted as materialized (
    select pairs.workspace_id, pairs.merged_id, pairs.kept_id
    from ${pairsTable}
  ), names as materialized (
    select wanted.workspace_id, wanted.kept_id, 's:' || wanted.merged_id as name
    from wanted
    union
    select wanted.workspace_id, wanted.kept_id, 'x:' || profile.external_id
    from wanted
    cross join lateral (
      select profiles.external_id
      from profiles
      where profiles.workspace_id = wanted.workspace_id and profiles.id = wanted.merged_id
      limit 1
    ) as profile
    where profile.external_id is not null
    union
    select wanted.workspace_id, wanted.kept_id, 'x:' || deprecated.external_id
    from wanted
    join deprecated_external_ids as deprecated
      on deprecated.workspace_id = wanted.workspace_id and deprecated.profile_id = wanted.merged_id
    union
    select wanted.workspace_id, wanted.kept_id,
      'a:' || octet_length(aliases.alias_label) || ':' || aliases.alias_label || aliases.alias_name
    from wanted
    join user_aliases as aliases
      on aliases.workspace_id = wanted.workspace_id and aliases.profile_id = wanted.merged_id
  ), found as materialized (
    select hit.id, array_agg(distinct 's:' || names.kept_id) as keepers
    from names
    cross join lateral (
      select dead_letters.id, dead_letters.workspace_id
      from dead_letters
      where dead_letters.identifiers @> array[names.name]
        and dead_letters.identifiers <> '{}'
      offset 0
    ) as hit
    where hit.workspace_id = names.workspace_id
    group by hit.id
  )
  update dead_letters set identifiers = dead_letters.identifiers || found.keepers
  from found
  where dead_letters.id = found.id`;

/**
 * What waits among the dead letters for a merged user is from now on the kept user's too: a delete of that user finds
 * it. Runs while the merged profiles have their names.
 */
export async function handOverDeadLetters(tx: Connection, pairs: MergePair[]): Promise<void> {
  await tx.query({ name: 'hand-over-dead-letters', text: statement, values: pairValues(pairs) });
}
