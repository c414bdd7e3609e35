import type { Connection } from '../database.ts';
import type { EmailState } from './set-email-states.ts';

/** Into email_addresses, sorted by primary key; an address that has a state keeps it, one that only bounced has none. */
const statement = `
  insert into email_addresses (workspace_id, email, state, changed_at)
  select given.workspace_id, given.email, given.state, $2::timestamptz
  from jsonb_to_recordset($1::jsonb) as given (workspace_id uuid, email text, state text)
  order by given.workspace_id, given.email
  on conflict (workspace_id, email) do update set
    state = excluded.state,
    changed_at = excluded.changed_at
  where email_addresses.state is null`;

/** Gives addresses the global state that a profile had before it had an address; each stands once. */
export async function takeEmailStates(tx: Connection, states: EmailState[], now: Date): Promise<void> {
  await tx.query({ name: 'take-email-states', text: statement, values: [JSON.stringify(states), now] });
}
