import { profileColumns } from './profile-row.ts';

/** Most profiles that are looked at per address: with as many, there may be more. */
export const MAX_SHARING = 100;

/**
 * The profiles that share each address, by the index on that column, then by the primary keys of the summaries;
 * locks nothing. Per address: profiles with an external id first, the most recently updated first among each. An
 * event or a purchase updates a profile too, and only its summary says when.
 *
 * @param column the address: a column of profiles
 * @param condition what a row must fulfil besides, as SQL
 */
export function sharingStatement(column: 'email' | 'phone', condition: string): string {
  return `
  select ${profileColumns}
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, address)
  cross join lateral (
    select profiles.*
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.${column} = wanted.address
      and ${condition}
    order by
      profiles.external_id is null,
      greatest(
        profiles.updated_at,
        (select max(event_summaries.updated_at) from event_summaries
          where event_summaries.workspace_id = profiles.workspace_id and event_summaries.profile_id = profiles.id),
        (select max(purchase_summaries.updated_at) from purchase_summaries
          where purchase_summaries.workspace_id = profiles.workspace_id and purchase_summaries.profile_id = profiles.id)
      ) desc,
      profiles.id desc
    limit ${MAX_SHARING}
  ) as profiles`;
}
