import type { Connection } from '../database.ts';
import type { Group } from './find-groups.ts';
import type { GroupState } from './set-subscription-states.ts';

/** The name of the global email state among the states of groups. */
export const GLOBAL = '';

export interface StoredState {
  workspaceId: string;
  kind: GroupState['subject_kind'];
  subject: string;
  /** A group's id, or GLOBAL. */
  group: string;
  channel: Group['channel'];
  state: string;
}

/** By the primary keys of the three tables; locks nothing. */
const statement = `
  select
    wanted.workspace_id as "workspaceId",
    wanted.kind,
    wanted.subject,
    stored."group",
    stored.channel,
    stored.state
  from unnest($1::uuid[], $2::text[], $3::text[]) as wanted (workspace_id, kind, subject)
  cross join lateral (
    select subscription_states.subscription_group_id::text as "group", subscription_groups.channel, subscription_states.state
    from subscription_states
    join subscription_groups on subscription_groups.id = subscription_states.subscription_group_id
    where subscription_states.workspace_id = wanted.workspace_id
      and subscription_states.subject_kind = wanted.kind
      and subscription_states.subject = wanted.subject
    union all
    select '${GLOBAL}', 'email', profiles.email_subscribe
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.id = case when wanted.kind = 'profile' then wanted.subject::uuid end
      and profiles.email_subscribe is not null
  ) as stored`;

/** The states of groups of these phone numbers and profiles, and the global state that a profile has for itself. */
export async function findStates(
  tx: Connection,
  workspaceIds: string[],
  kinds: string[],
  subjects: string[],
): Promise<StoredState[]> {
  const { rows } = await tx.query<StoredState>({
    name: 'find-states',
    text: statement,
    values: [workspaceIds, kinds, subjects],
  });
  return rows;
}
