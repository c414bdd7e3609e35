import type { Identifier } from '../../profile/identifier.ts';
import { plainArray } from '../arrays.ts';
import type { Connection } from '../database.ts';
import { identifierText } from '../dead-letters/identifier-text.ts';
import { keyValues, type ProfileKey } from './pair.ts';

/**
 * By the index dead_letters_identifiers. Deletes what waits among the dead letters for the named identifiers and
 * for every other one that belongs to the profiles alone. An address counts where nobody else has it.
 */
const statement = `
  with wanted as materialized (
    select * from unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)
  ), names as materialized (
    select named.workspace_id, named.name
    from unnest($3::uuid[], $4::text[]) as named (workspace_id, name)
    union all
    select wanted.workspace_id, 's:' || wanted.id
    from wanted
    union all
    select profiles.workspace_id, 'x:' || profiles.external_id
    from wanted
    join profiles on profiles.workspace_id = wanted.workspace_id and profiles.id = wanted.id
    where profiles.external_id is not null
    union all
    select deprecated.workspace_id, 'x:' || deprecated.external_id
    from wanted
    join deprecated_external_ids as deprecated
      on deprecated.workspace_id = wanted.workspace_id and deprecated.profile_id = wanted.id
    union all
    select aliases.workspace_id,
      'a:' || octet_length(aliases.alias_label) || ':' || aliases.alias_label || aliases.alias_name
    from wanted
    join user_aliases as aliases
      on aliases.workspace_id = wanted.workspace_id and aliases.profile_id = wanted.id
    union all
    select profiles.workspace_id, 'e:' || profiles.email
    from wanted
    join profiles on profiles.workspace_id = wanted.workspace_id and profiles.id = wanted.id
    where not exists (
      select from profiles as others
      where others.workspace_id = profiles.workspace_id
        and others.email = profiles.email
        and others.id not in (select gone.id from wanted as gone))
      and profiles.email is not null
    union all
    select profiles.workspace_id, 'p:' || profiles.phone
    from wanted
    join profiles on profiles.workspace_id = wanted.workspace_id and profiles.id = wanted.id
    where profiles.phone_valid
      and not exists (
        select from profiles as others
        where others.workspace_id = profiles.workspace_id
          and others.phone = profiles.phone
          and others.phone_valid
          and others.id not in (select gone.id from wanted as gone))
  )
  delete from dead_letters using names
  where dead_letters.workspace_id = names.workspace_id
    and dead_letters.identifiers @> array[names.name]
    and dead_letters.identifiers <> '{}'`;

/**
 * What was accepted before a delete never comes back after it, not from the dead letters either. Runs while the
 * profiles are still there.
 *
 * @param named the identifiers that the deletes named, whether they belong to anybody or not
 */
export async function forgetDeadLetters(
  tx: Connection,
  keys: ProfileKey[],
  named: { workspaceId: string; identifier: Identifier }[],
): Promise<void> {
  await tx.query({
    name: 'forget-dead-letters',
    text: statement,
    values: [
      ...keyValues(keys),
      plainArray(named, ({ workspaceId }) => workspaceId),
      named.map(({ identifier }) => identifierText(identifier)),
    ],
  });
}
