import type { Connection, Pool } from './database.ts';

/** The lists of email addresses: which are on them, and the column that says since when. */
const lists = {
  unsubscribed: { condition: "email_addresses.state = 'unsubscribed'", since: 'email_addresses.changed_at' },
  hard_bounced: {
    condition: 'email_addresses.hard_bounced_at is not null',
    since: 'email_addresses.hard_bounced_at',
  },
} as const;

export type EmailList = keyof typeof lists;
export type Direction = 'asc' | 'desc';

/**
 * By the index email_addresses_unsubscribed or email_addresses_hard_bounced, in its order; of one address by primary
 * key.
 */
const statementOf = (list: EmailList, direction: Direction, isOne: boolean) => {
  const { condition, since } = lists[list];
  return `
  select
    email_addresses.email,
    to_char(${since} at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS "+0000"') as since
  from email_addresses
  where email_addresses.workspace_id = $1::uuid
    and ${condition}
    and ${since} >= $2::timestamptz
    and ${since} < $3::timestamptz
    ${isOne ? 'and email_addresses.email = $6' : ''}
  order by ${since} ${direction}, email_addresses.email ${direction}
  limit $4
  offset $5`;
};

export interface Page {
  /** Only this address; absent: all. */
  email?: string;
  /** ISO 8601 or infinite, the end excluded. */
  from: string;
  to: string;
  direction: Direction;
  limit: number;
  offset: number;
}

/** A page of a list of addresses. `since` is as in `2020-06-17 19:27:44 +0000`. */
export async function listEmails(
  pool: Pool,
  workspaceId: string,
  { list, email, from, to, direction, limit, offset }: Page & { list: EmailList },
): Promise<{ email: string; since: string }[]> {
  const isOne = email !== undefined;
  const { rows } = await pool.query<{ email: string; since: string }>({
    name: `list-emails-${list}-${direction}${isOne ? '-one' : ''}`,
    text: statementOf(list, direction, isOne),
    values: [workspaceId, from, to, limit, offset, ...(isOne ? [email] : [])],
  });
  return rows;
}

/** By the index profiles_email, for each address: the limit keeps the planner from a join. Locks nothing. */
const findHeldEmailsStatement = `
  select wanted.workspace_id as "workspaceId", wanted.email
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, email)
  where (
    select 1
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.email = wanted.email
      and profiles.id <> all ($3::uuid[])
    limit 1) is not null`;

/**
 * Which of these addresses somebody has.
 *
 * @param except profiles that do not count
 */
export async function findHeldEmails(
  tx: Connection,
  { workspaceIds, emails, except }: { workspaceIds: string[]; emails: string[]; except: string[] },
): Promise<{ workspaceId: string; email: string }[]> {
  const { rows } = await tx.query<{ workspaceId: string; email: string }>({
    name: 'find-held-emails',
    text: findHeldEmailsStatement,
    values: [workspaceIds, emails, except],
  });
  return rows;
}

/** By primary key. */
const readAddressStatesStatement = `
  select subscription_states.subject as name, subscription_states.state
  from subscription_states
  where subscription_states.workspace_id = $1::uuid
    and subscription_states.subject_kind = $2
    and subscription_states.subject = any($3::text[])
    and subscription_states.subscription_group_id = $4::uuid`;

export interface GroupAddresses {
  workspaceId: string;
  groupId: string;
  /** Of address that the group is about. */
  kind: 'email' | 'phone';
}

/** What addresses have said of a group; one that has said nothing is missing. */
export async function readAddressStates(
  pool: Pool,
  { workspaceId, groupId, kind }: GroupAddresses,
  addresses: string[],
): Promise<{ name: string; state: string }[]> {
  const { rows } = await pool.query<{ name: string; state: string }>({
    name: 'read-address-states',
    text: readAddressStatesStatement,
    values: [workspaceId, kind, addresses, groupId],
  });
  return rows;
}
