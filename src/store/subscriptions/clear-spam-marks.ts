import type { Connection } from '../database.ts';

export interface EmailKey {
  workspace_id: string;
  email: string;
}

/** By the index profiles_email; locks the marked profiles in id order. An address may stand twice. */
const statement = `
  with marked as materialized (
    select holders.workspace_id, holders.id
    from unnest($1::uuid[], $2::text[]) as given (workspace_id, email)
    cross join lateral (
      select profiles.workspace_id, profiles.id
      from profiles
      where profiles.workspace_id = given.workspace_id
        and profiles.email = given.email
        and profiles.marked_email_as_spam_at is not null
      offset 0
    ) as holders
  ), locked as materialized (
    select profiles.workspace_id, profiles.id
    from profiles
    where (profiles.workspace_id, profiles.id) in (select marked.workspace_id, marked.id from marked)
    order by profiles.id
    for update
  )
  update profiles set marked_email_as_spam_at = null
  from locked
  where profiles.workspace_id = locked.workspace_id and profiles.id = locked.id`;

/** Takes the mark as spam from everyone who has one of the addresses. It is no update of the profile. */
export async function clearSpamMarks(tx: Connection, emails: EmailKey[]): Promise<void> {
  await tx.query({
    name: 'clear-spam-marks',
    text: statement,
    values: [emails.map(({ workspace_id }) => workspace_id), emails.map(({ email }) => email)],
  });
}
