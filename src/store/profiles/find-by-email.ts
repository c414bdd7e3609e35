import type { Connection } from '../database.ts';
import { type ProfileRow, profileColumns } from './profile-row.ts';

/** Most profiles that are looked at per email address. */
export const MAX_SHARING_EMAIL = 100;

/**
 * By the index profiles_email, then by the primary keys of the summaries; locks nothing. Per email address: profiles
 * with an external id first, the most recently updated first among each. An event or a purchase updates a profile
 * too, and only its summary says when.
 */
const statement = `
  select ${profileColumns}
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, email)
  cross join lateral (
    select profiles.*
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.email = wanted.email
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
    limit ${MAX_SHARING_EMAIL}
  ) as profiles`;

/** The profiles that share each email address, best match first. */
export async function findByEmail(
  tx: Connection,
  workspaceIds: string[],
  emails: string[],
): Promise<ProfileRow[]> {
  const { rows } = await tx.query<ProfileRow>({
    name: 'find-by-email',
    text: statement,
    values: [workspaceIds, emails],
  });
  return rows;
}
