import type { Connection } from '../database.ts';

export interface HardBounce {
  workspace_id: string;
  email: string;
  hard_bounced: boolean;
}

/** By primary key, sorted by it; each address stands once. One that bounces again keeps its time. */
const statement = `
  with given as (
    select *
    from jsonb_to_recordset($1::jsonb) as given (workspace_id uuid, email text, hard_bounced boolean)
  ), cleared as (
    update email_addresses set hard_bounced_at = null
    from given
    where not given.hard_bounced
      and email_addresses.workspace_id = given.workspace_id
      and email_addresses.email = given.email
      and email_addresses.hard_bounced_at is not null
  )
  insert into email_addresses (workspace_id, email, state, hard_bounced_at, changed_at)
  select given.workspace_id, given.email, null, $2::timestamptz, $2::timestamptz
  from given
  where given.hard_bounced
  order by given.workspace_id, given.email
  on conflict (workspace_id, email) do update set hard_bounced_at = excluded.hard_bounced_at
  where email_addresses.hard_bounced_at is null`;

/** Notes that addresses do not exist, whether anybody has them or not, or that they do after all. */
export async function setHardBounces(tx: Connection, bounces: HardBounce[], now: Date): Promise<void> {
  await tx.query({ name: 'set-hard-bounces', text: statement, values: [JSON.stringify(bounces), now] });
}
