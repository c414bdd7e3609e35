import type { Connection } from '../database.ts';

/**
 * By primary key and the indexes profiles_email and profiles_phone: forgets the states of addresses that nobody
 * has any more, and what they were. Runs after the profiles are gone. The limits keep the
 * planner from joining the whole table instead.
 */
const statement = `
  with unheld as materialized (
    select given.workspace_id, given.kind, given.address
    from unnest($1::uuid[], $2::text[], $3::text[]) as given (workspace_id, kind, address)
    where (
      select 1 from profiles
      where given.kind = 'email'
        and profiles.workspace_id = given.workspace_id
        and profiles.email = given.address
      limit 1) is null
      and (
        select 1 from profiles
        where given.kind = 'phone'
          and profiles.workspace_id = given.workspace_id
          and profiles.phone = given.address
          and profiles.phone_valid
        limit 1) is null
  ), states_gone as (
    delete from subscription_states using unheld
    where subscription_states.workspace_id = unheld.workspace_id
      and subscription_states.subject_kind = unheld.kind
      and subscription_states.subject = unheld.address
  ), history_gone as (
    delete from subscription_history using unheld
    where subscription_history.workspace_id = unheld.workspace_id
      and subscription_history.subject_kind = unheld.kind
      and subscription_history.subject = unheld.address
  )
  delete from email_addresses using unheld
  where unheld.kind = 'email'
    and email_addresses.workspace_id = unheld.workspace_id
    and email_addresses.email = unheld.address`;

export interface HeldAddress {
  workspaceId: string;
  kind: 'email' | 'phone';
  address: string;
}

/** With the last user who has an address, the address's subscription states go, with their history. */
export async function dropUnheldAddresses(tx: Connection, addresses: HeldAddress[]): Promise<void> {
  await tx.query({
    name: 'drop-unheld-addresses',
    text: statement,
    values: [
      addresses.map(({ workspaceId }) => workspaceId),
      addresses.map(({ kind }) => kind),
      addresses.map(({ address }) => address),
    ],
  });
}
