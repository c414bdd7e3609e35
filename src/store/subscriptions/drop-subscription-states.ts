import type { Connection } from '../database.ts';
import type { GroupState } from './set-subscription-states.ts';

/** By primary key; locks the rows that it deletes. */
const statement = `
  delete from subscription_states
  using jsonb_to_recordset($1::jsonb) as given (
    workspace_id uuid, subject_kind text, subject text, subscription_group_id uuid)
  where subscription_states.workspace_id = given.workspace_id
    and subscription_states.subject_kind = given.subject_kind
    and subscription_states.subject = given.subject
    and subscription_states.subscription_group_id = given.subscription_group_id`;

/** Forgets states that have passed from a profile to its address; one that is not there does no harm. */
export async function dropSubscriptionStates(
  tx: Connection,
  states: Omit<GroupState, 'state'>[],
): Promise<void> {
  await tx.query({ name: 'drop-subscription-states', text: statement, values: [JSON.stringify(states)] });
}
