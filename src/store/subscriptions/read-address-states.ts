import type { Pool } from '../database.ts';

/** By primary key. */
const statement = `
  select subscription_states.subject as name, subscription_states.state
  from subscription_states
  where subscription_states.workspace_id = $1::uuid
    and subscription_states.subject_kind = $2
    and subscription_states.subject = any($3::text[])
    and subscription_states.subscription_group_id = $4::uuid`;

/** What addresses have said of a group; one that has said nothing is missing. */
export async function readAddressStates(
  pool: Pool,
  workspaceId: string,
  groupId: string,
  kind: 'email' | 'phone',
  addresses: string[],
): Promise<{ name: string; state: string }[]> {
  const { rows } = await pool.query<{ name: string; state: string }>({
    name: 'read-address-states',
    text: statement,
    values: [workspaceId, kind, addresses, groupId],
  });
  return rows;
}
