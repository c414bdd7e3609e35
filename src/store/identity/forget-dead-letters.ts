import type { Identifier } from '../../profile/identifier.ts';
import { uuidArray } from '../arrays.ts';
import type { Connection } from '../database.ts';
import { identifierText } from '../dead-letters/identifier-text.ts';
import { keyValues, type ProfileKey } from './pair.ts';

/**
 * By the indexes dead_letters_identifiers, sync_row_errors_identifiers, profiles_email and profiles_phone. Deletes what
 * waits among the dead letters for the named identifiers and for every other one that belongs to the profiles alone, and
 * the rows of warehouses that failed for them. An address counts where
 * nobody else has it.
 *
 * The limits, and the offset, keep the planner from reading a whole table or workspace instead.
 */
const statement = `
  with wanted as materialized (
    select wanted.workspace_id, wanted.id, profile.external_id, profile.email, profile.phone
    from unnest($1::uuid[], $2::uuid[]) as wanted (workspace_id, id)
    cross join lateral (
      select profiles.external_id, profiles.email, case when profiles.phone_valid then profiles.phone end as phone
      from profiles
      where profiles.workspace_id = wanted.workspace_id and profiles.id = wanted.id
      limit 1
    ) as profile
  ), addresses as materialized (
    select named.workspace_id, named.kind, named.address
    from unnest($5::uuid[], $6::text[], $7::text[]) as named (workspace_id, kind, address)
    union
    select wanted.workspace_id, 'e', wanted.email from wanted where wanted.email is not null
    union
    select wanted.workspace_id, 'p', wanted.phone from wanted where wanted.phone is not null
  ), names as materialized (
    select named.workspace_id, named.name
    from unnest($3::uuid[], $4::text[]) as named (workspace_id, name)
    union
    select wanted.workspace_id, 's:' || wanted.id
    from wanted
    union
    select wanted.workspace_id, 'x:' || wanted.external_id
    from wanted
    where wanted.external_id is not null
    union
    select deprecated.workspace_id, 'x:' || deprecated.external_id
    from wanted
    join deprecated_external_ids as deprecated
      on deprecated.workspace_id = wanted.workspace_id and deprecated.profile_id = wanted.id
    union
    select aliases.workspace_id,
      'a:' || octet_length(aliases.alias_label) || ':' || aliases.alias_label || aliases.alias_name
    from wanted
    join user_aliases as aliases
      on aliases.workspace_id = wanted.workspace_id and aliases.profile_id = wanted.id
    union
    select addresses.workspace_id, addresses.kind || ':' || addresses.address
    from addresses
    where (
      select 1 from profiles as others
      where addresses.kind = 'e'
        and others.workspace_id = addresses.workspace_id
        and others.email = addresses.address
        and (others.workspace_id, others.id) not in (select wanted.workspace_id, wanted.id from wanted)
      limit 1) is null
      and (
        select 1 from profiles as others
        where addresses.kind = 'p'
          and others.workspace_id = addresses.workspace_id
          and others.phone = addresses.address
          and others.phone_valid
          and (others.workspace_id, others.id) not in (select wanted.workspace_id, wanted.id from wanted)
        limit 1) is null
  ), found as materialized (
    select hit.id
    from names
    cross join lateral (
      select dead_letters.id, dead_letters.workspace_id
      from dead_letters
      where dead_letters.identifiers @> array[names.name]
        and dead_letters.identifiers <> '{}'
      offset 0
    ) as hit
    where hit.workspace_id = names.workspace_id
  ), failed as materialized (
    select hit.job_id, hit.number
    from names
    cross join lateral (
      select sync_row_errors.job_id, sync_row_errors.number
      from sync_row_errors
      where sync_row_errors.identifiers @> array[names.name]
        and sync_row_errors.identifiers <> '{}'
      offset 0
    ) as hit
    cross join lateral (
      select integrations.workspace_id
      from sync_jobs
      join integrations on integrations.id = sync_jobs.integration_id
      where sync_jobs.id = hit.job_id
      limit 1
    ) as job
    where job.workspace_id = names.workspace_id
  ), forgotten as (
    delete from sync_row_errors using failed
    where sync_row_errors.job_id = failed.job_id and sync_row_errors.number = failed.number
  )
  delete from dead_letters using found
  where dead_letters.id = found.id`;

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
  const own = named.filter(({ identifier }) => addressOf(identifier) === undefined);
  const addresses = named.flatMap(({ workspaceId, identifier }) => {
    const address = addressOf(identifier);
    return address ? [{ workspaceId, ...address }] : [];
  });
  await tx.query({
    name: 'forget-dead-letters',
    text: statement,
    values: [
      ...keyValues(keys),
      uuidArray(own, ({ workspaceId }) => workspaceId),
      own.map(({ identifier }) => identifierText(identifier)),
      uuidArray(addresses, ({ workspaceId }) => workspaceId),
      addresses.map(({ kind }) => kind),
      addresses.map(({ address }) => address),
    ],
  });
}

/** What several users can have. */
function addressOf(identifier: Identifier): { kind: 'e' | 'p'; address: string } | undefined {
  if ('email' in identifier) return { kind: 'e', address: identifier.email };
  return 'phone' in identifier ? { kind: 'p', address: identifier.phone } : undefined;
}
