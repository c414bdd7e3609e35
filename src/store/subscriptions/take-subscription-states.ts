import type { Connection } from '../database.ts';
import type { GroupState } from './set-subscription-states.ts';

/** Into subscription_states, sorted by primary key; a state that is there stays. */
const statement = `
  insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
  select given.workspace_id, given.subject_kind, given.subject, given.subscription_group_id, given.state, $2::timestamptz
  from jsonb_to_recordset($1::jsonb) as given (
    workspace_id uuid, subject_kind text, subject text, subscription_group_id uuid, state text)
  order by given.workspace_id, given.subject_kind, given.subject, given.subscription_group_id
  on conflict (workspace_id, subject_kind, subject, subscription_group_id) do nothing`;

/** Gives addresses the group states of a profile that gets them; each key stands once. */
export async function takeSubscriptionStates(tx: Connection, states: GroupState[], now: Date): Promise<void> {
  await tx.query({
    name: 'take-subscription-states',
    text: statement,
    values: [JSON.stringify(states), now],
  });
}
