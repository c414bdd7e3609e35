import type { Connection } from '../database.ts';

export interface EmailState {
  workspace_id: string;
  email: string;
  state: string;
}

/** Upserts by primary key, sorted by it; each address stands once. A state that is said again keeps its time. */
const statement = `
  insert into email_addresses (workspace_id, email, state, changed_at)
  select given.workspace_id, given.email, given.state, $2::timestamptz
  from jsonb_to_recordset($1::jsonb) as given (workspace_id uuid, email text, state text)
  order by given.workspace_id, given.email
  on conflict (workspace_id, email) do update set
    state = excluded.state,
    changed_at = case
      when email_addresses.state = excluded.state then email_addresses.changed_at else excluded.changed_at end`;

/** Sets the global state of addresses, and so of every profile that has one of them. */
export async function setEmailStates(tx: Connection, states: EmailState[], now: Date): Promise<void> {
  await tx.query({ name: 'set-email-states', text: statement, values: [JSON.stringify(states), now] });
}
