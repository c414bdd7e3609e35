import type { Connection } from '../database.ts';
import { marks } from './marks.ts';

/** An address of which a request says that nobody on it takes our email for spam. */
export interface ClearedSpam {
  workspace_id: string;
  email: string;
  request_id: string;
}

/**
 * By the index profiles_email; locks the marked profiles in id order. An address may stand twice: the first one clears
 * the mark, and stands in the history.
 */
const statement = `
  with marked as materialized (
    select distinct on (holders.workspace_id, holders.id) holders.workspace_id, holders.id, given.request_id
    from unnest($1::uuid[], $2::text[], $3::text[]) with ordinality as given (workspace_id, email, request_id, place)
    cross join lateral (
      select profiles.workspace_id, profiles.id
      from profiles
      where profiles.workspace_id = given.workspace_id
        and profiles.email = given.email
        and profiles.marked_email_as_spam_at is not null
      offset 0
    ) as holders
    order by holders.workspace_id, holders.id, given.place
  ), locked as materialized (
    select profiles.workspace_id, profiles.id
    from profiles
    where (profiles.workspace_id, profiles.id) in (select marked.workspace_id, marked.id from marked)
      and profiles.marked_email_as_spam_at is not null
    order by profiles.id
    for update
  ), cleared as (
    update profiles set marked_email_as_spam_at = null
    from locked
    where profiles.workspace_id = locked.workspace_id and profiles.id = locked.id
    returning profiles.workspace_id, profiles.id
  )
  insert into subscription_history (
    workspace_id, subject_kind, subject, subscription, from_state, to_state, changed_at, request_id)
  select
    marked.workspace_id, 'profile', marked.id::text, 'spam', '${marks.spam}', null, $4::timestamptz, marked.request_id
  from cleared
  join marked on marked.workspace_id = cleared.workspace_id and marked.id = cleared.id`;

/** Takes the mark as spam from everyone who has one of the addresses. It is no update of the profile. */
export async function clearSpamMarks(tx: Connection, cleared: ClearedSpam[], now: Date): Promise<void> {
  await tx.query({
    name: 'clear-spam-marks',
    text: statement,
    values: [
      cleared.map(({ workspace_id }) => workspace_id),
      cleared.map(({ email }) => email),
      cleared.map(({ request_id }) => request_id),
      now,
    ],
  });
}
