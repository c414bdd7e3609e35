import type { Connection } from '../database.ts';
import { type ProfileRow, profileColumns } from './profile-row.ts';

/** Most profiles that are looked at per phone number. */
export const MAX_SHARING_PHONE = 100;

/**
 * By the index profiles_phone, then by the primary keys of the summaries; locks nothing. Per phone number: profiles
 * with an external id first, the most recently updated first among each. An event or a purchase updates a profile
 * too, and only its summary says when.
 */
const statement = `
  select ${profileColumns}
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, phone)
  cross join lateral (
    select profiles.*
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.phone = wanted.phone
      and profiles.phone_valid
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
    limit ${MAX_SHARING_PHONE}
  ) as profiles`;

/** The profiles that share each phone number, best match first. */
export async function findByPhone(
  tx: Connection,
  workspaceIds: string[],
  phones: string[],
): Promise<ProfileRow[]> {
  const { rows } = await tx.query<ProfileRow>({
    name: 'find-by-phone',
    text: statement,
    values: [workspaceIds, phones],
  });
  return rows;
}
