import { NIL_UUID } from '../platform/ids.ts';
import { type Connection, iso, type Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';

/** The lists of email addresses: which are on them, and the column that says since when. */
const lists = {
  unsubscribed: { condition: "email_addresses.state = 'unsubscribed'", since: 'email_addresses.changed_at' },
  hard_bounced: {
    condition: 'email_addresses.hard_bounced_at is not null',
    since: 'email_addresses.hard_bounced_at',
  },
} as const;

type EmailList = keyof typeof lists;
type Direction = 'asc' | 'desc';

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

/** Why no message reaches a number: its provider says so, or nobody has it any more. */
export const invalidReasons = ['provider_error', 'deactivated'] as const;
export type InvalidReason = (typeof invalidReasons)[number];

/** Which invalid numbers are wanted: these, or those of a time. */
export interface InvalidNumbersPage {
  /** E.164; absent: all. */
  phones?: string[];
  /** ISO 8601 or infinite, the end excluded. */
  from: string;
  to: string;
  /** Absent: any. */
  reason?: InvalidReason;
  limit: number;
  offset: number;
}

/** By invalid_phone_numbers_detected, in its order; of named numbers by primary key. */
const listStatement = (named: boolean) => `
  select
    invalid_phone_numbers.phone,
    ${iso('invalid_phone_numbers.detected_at')} as "detectedAt",
    invalid_phone_numbers.reason
  from invalid_phone_numbers
  where invalid_phone_numbers.workspace_id = $1::uuid
    and invalid_phone_numbers.detected_at >= $2::timestamptz
    and invalid_phone_numbers.detected_at < $3::timestamptz
    and ($4::text is null or invalid_phone_numbers.reason = $4)
    ${named ? 'and invalid_phone_numbers.phone = any($7::text[])' : ''}
  order by invalid_phone_numbers.detected_at desc, invalid_phone_numbers.phone desc
  limit $5
  offset $6`;

const listed = listStatement(false);
const listedByName = listStatement(true);

/** A page of the invalid numbers, the latest first; `detectedAt` is ISO 8601 in UTC. */
export async function listInvalidNumbers(
  pool: Pool,
  workspaceId: string,
  { phones, from, to, reason, limit, offset }: InvalidNumbersPage,
): Promise<{ phone: string; detectedAt: string; reason: InvalidReason }[]> {
  const { rows } = await pool.query<{ phone: string; detectedAt: string; reason: InvalidReason }>({
    name: phones ? 'list-named-invalid-numbers' : 'list-invalid-numbers',
    text: phones ? listedByName : listed,
    values: [workspaceId, from, to, reason ?? null, limit, offset, ...(phones ? [phones] : [])],
  });
  return rows;
}

/** By primary key, in its order; a number that is marked again has the latest reason and keeps its time. */
const markStatement = `
  insert into invalid_phone_numbers (workspace_id, phone, reason, detected_at)
  select $1::uuid, given.phone, $3, now()
  from (select distinct unnest($2::text[]) as phone) as given
  order by given.phone
  on conflict (workspace_id, phone) do update set reason = excluded.reason`;

/**
 * Says of numbers that no message reaches them.
 *
 * @param phones E.164
 */
export async function markInvalidNumbers(
  tx: Connection,
  workspaceId: string,
  { phones, reason }: { phones: string[]; reason: InvalidReason },
): Promise<void> {
  await tx.query({
    name: 'mark-invalid-numbers',
    text: markStatement,
    values: [workspaceId, phones, reason],
  });
}

/** By primary key, locked in its order. */
const removeStatement = `
  with found as materialized (
    select invalid_phone_numbers.workspace_id, invalid_phone_numbers.phone
    from invalid_phone_numbers
    where invalid_phone_numbers.workspace_id = $1::uuid and invalid_phone_numbers.phone = any($2::text[])
    order by invalid_phone_numbers.phone
    for update
  )
  delete from invalid_phone_numbers using found
  where invalid_phone_numbers.workspace_id = found.workspace_id and invalid_phone_numbers.phone = found.phone`;

/**
 * Takes numbers off the list; one that is not on it does no harm.
 *
 * @param phones E.164
 * @returns how many were on it
 */
export async function removeInvalidNumbers(
  tx: Pool | Connection,
  workspaceId: string,
  phones: string[],
): Promise<number> {
  const { rowCount } = await tx.query({
    name: 'remove-invalid-numbers',
    text: removeStatement,
    values: [workspaceId, phones],
  });
  return rowCount ?? 0;
}

/** Days for which a number stays on the list that nobody has: somebody may be about to. */
const KEPT_DAYS = 90;
const PAGE = 5000;

/** Where the next page begins. */
export interface InvalidNumbersCursor {
  workspaceId: string;
  phone: string;
}

/** A page of the primary key. */
const pageStatement = `
  select
    invalid_phone_numbers.workspace_id as "workspaceId", invalid_phone_numbers.phone,
    invalid_phone_numbers.detected_at < now() - make_interval(days => $4) as old
  from invalid_phone_numbers
  where (invalid_phone_numbers.workspace_id, invalid_phone_numbers.phone) > ($1::uuid, $2::text)
  order by invalid_phone_numbers.workspace_id, invalid_phone_numbers.phone
  limit $3`;

/** By primary key; each number by profiles_phone, which a join would read from end to end. */
const forgetStatement = `
  delete from invalid_phone_numbers
  using unnest($1::uuid[], $2::text[]) as page (workspace_id, phone)
  where invalid_phone_numbers.workspace_id = page.workspace_id
    and invalid_phone_numbers.phone = page.phone
    and invalid_phone_numbers.detected_at < now() - make_interval(days => $3)
    and (
      select profiles.id
      from profiles
      where profiles.workspace_id = page.workspace_id
        and profiles.phone = page.phone
        and profiles.phone_valid
      limit 1
    ) is null`;

/**
 * Takes numbers off the list that have been on it for 90 days and that nobody has.
 * @param after what the call before has returned
 * @returns where the next page begins; undefined: this was the last one
 */
export async function forgetInvalidNumbers(
  pool: Pool,
  after: InvalidNumbersCursor | undefined,
): Promise<InvalidNumbersCursor | undefined> {
  const { rows: page } = await pool.query<InvalidNumbersCursor & { old: boolean }>({
    name: 'page-of-invalid-numbers',
    text: pageStatement,
    values: [after?.workspaceId ?? NIL_UUID, after?.phone ?? '', PAGE, KEPT_DAYS],
  });
  const given = page.filter(({ old }) => old);
  if (given.length > 0)
    await forEachWorkspace(pool, { given, workspaceOf: ({ workspaceId }) => workspaceId }, async (some) => {
      await pool.query({
        name: 'forget-invalid-numbers',
        text: forgetStatement,
        values: [some.map(({ workspaceId }) => workspaceId), some.map(({ phone }) => phone), KEPT_DAYS],
      });
      return [];
    });
  const last = page.length < PAGE ? undefined : page.at(-1);
  return last && { workspaceId: last.workspaceId, phone: last.phone };
}
