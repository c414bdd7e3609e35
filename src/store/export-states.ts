import type { Pool } from './database.ts';

/** A state of a group as it is stored. */
export interface GroupState {
  /** Whose it is: an address's, or that of a profile for lack of one. */
  kind: 'email' | 'phone' | 'profile';
  /** The address, or the profile's id. */
  subject: string;
  groupId: string;
  state: 'subscribed' | 'unsubscribed';
  channel: 'email' | 'sms' | 'whatsapp';
}

/** A page in the order of the primary key. */
const readGroupStatesStatement = `
  select subscription_states.subject_kind as kind, subscription_states.subject,
    subscription_states.subscription_group_id as "groupId", subscription_states.state,
    coalesce((
      select subscription_groups.channel
      from subscription_groups
      where subscription_groups.id = subscription_states.subscription_group_id
      limit 1), 'email') as channel
  from subscription_states
  where subscription_states.workspace_id = $1::uuid
    and (subscription_states.subject_kind, subscription_states.subject, subscription_states.subscription_group_id)
      > ($2::text, $3::text, $4::uuid)
  order by subscription_states.workspace_id, subscription_states.subject_kind, subscription_states.subject,
    subscription_states.subscription_group_id
  limit $5::integer`;

export type StateKey = Pick<GroupState, 'kind' | 'subject' | 'groupId'>;

/** The next states of a workspace's groups, archived groups' as well. */
export async function readGroupStates(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { after, limit }: { after: Omit<StateKey, 'kind'> & { kind: string }; limit: number },
): Promise<GroupState[]> {
  const { rows } = await pool.query<GroupState>({
    name: 'export-group-states',
    text: readGroupStatesStatement,
    values: [workspaceId, after.kind, after.subject, after.groupId, limit],
  });
  return rows;
}

/** A page in the order of the primary key. */
const readEmailStatesStatement = `
  select email_addresses.email, email_addresses.state
  from email_addresses
  where email_addresses.workspace_id = $1::uuid and email_addresses.email > $2::text
  order by email_addresses.workspace_id, email_addresses.email
  limit $3::integer`;

/** The next addresses of a workspace with their global state; null: they are only known to bounce. */
export async function readEmailStates(
  pool: Pick<Pool, 'query'>,
  workspaceId: string,
  { after, limit }: { after: string; limit: number },
): Promise<{ email: string; state: string | null }[]> {
  const { rows } = await pool.query<{ email: string; state: string | null }>({
    name: 'export-email-states',
    text: readEmailStatesStatement,
    values: [workspaceId, after, limit],
  });
  return rows;
}
