import type { Connection } from '../database.ts';

export interface GroupState {
  workspace_id: string;
  subject_kind: 'email' | 'phone' | 'profile';
  /** The address, or the profile's id. */
  subject: string;
  subscription_group_id: string;
  state: string;
}

/** Upserts by primary key, sorted by it; each key stands once. A state that is said again keeps its time. */
const statement = `
  insert into subscription_states (workspace_id, subject_kind, subject, subscription_group_id, state, changed_at)
  select given.workspace_id, given.subject_kind, given.subject, given.subscription_group_id, given.state, $2::timestamptz
  from jsonb_to_recordset($1::jsonb) as given (
    workspace_id uuid, subject_kind text, subject text, subscription_group_id uuid, state text)
  order by given.workspace_id, given.subject_kind, given.subject, given.subscription_group_id
  on conflict (workspace_id, subject_kind, subject, subscription_group_id) do update set
    state = excluded.state,
    changed_at = case
      when subscription_states.state = excluded.state then subscription_states.changed_at else excluded.changed_at end`;

export async function setSubscriptionStates(tx: Connection, states: GroupState[], now: Date): Promise<void> {
  await tx.query({ name: 'set-subscription-states', text: statement, values: [JSON.stringify(states), now] });
}
