import { NIL_UUID } from '../platform/ids.ts';
import type { Connection, Database, Pool } from './database.ts';
import { forEachWorkspace } from './distributed.ts';
import { withCitusForm } from './one-workspace.ts';

/** Lists of email addresses: the condition for being on the list, and the column with the time. */
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
 * Reads by the index email_addresses_unsubscribed or email_addresses_hard_bounced, in its order; a single
 * address by primary key.
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
  /** Returns only this address. Absent: all. */
  email?: string;
  /** ISO 8601 or infinite; the end is excluded. */
  from: string;
  to: string;
  direction: Direction;
  limit: number;
  offset: number;
}

/** Returns a page of a list of addresses. `since` has the format `2020-06-17 19:27:44 +0000`. */
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

/**
 * Reads by the index profiles_email for each address; the limit keeps the planner from using a join. Takes no
 * lock.
 */
const findHeldEmailsStatement = withCitusForm(`
  select wanted.workspace_id as "workspaceId", wanted.email
  from unnest($1::uuid[], $2::text[]) as wanted (workspace_id, email)
  where (
    select 1
    from profiles
    where profiles.workspace_id = wanted.workspace_id
      and profiles.email = wanted.email
      and profiles.id <> all ($3::uuid[])
    limit 1) is not null`);

/**
 * Returns those of the addresses that belong to a profile.
 *
 * @param except profiles to ignore
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

/**
 * Reason why messages do not reach a number: its provider reports an error, or the number is no longer in
 * use.
 */
export const invalidReasons = ['provider_error', 'deactivated'] as const;
export type InvalidReason = (typeof invalidReasons)[number];

/** Invalid numbers to list: the given ones, or those of a time range. */
export interface InvalidNumbersPage {
  /** Numbers in E.164. Absent: all. */
  phones?: string[];
  /** Times of the entries; the end is excluded. Absent: unlimited. */
  from?: Date;
  to?: Date;
  /** Reason of the entries; any reason if absent. */
  reason?: InvalidReason;
  limit: number;
  offset: number;
}

/** Returns a page of the invalid numbers, latest first. `detectedAt` is ISO 8601 in UTC. */
export async function listInvalidNumbers(
  { prisma }: Pick<Database, 'prisma'>,
  workspaceId: string,
  { phones, from, to, reason, limit, offset }: InvalidNumbersPage,
): Promise<{ phone: string; detectedAt: string; reason: InvalidReason }[]> {
  const rows = await prisma.invalidPhoneNumber.findMany({
    where: {
      ...{ workspaceId, ...(phones && { phone: { in: phones } }), ...(reason && { reason }) },
      detectedAt: { ...(from && { gte: from }), ...(to && { lt: to }) },
    },
    orderBy: [{ detectedAt: 'desc' }, { phone: 'desc' }],
    take: limit,
    skip: offset,
  });
  return rows.map((row) => ({
    ...{ phone: row.phone, detectedAt: row.detectedAt.toISOString() },
    reason: row.reason as InvalidReason,
  }));
}

/** Upserts in primary key order. A number that is marked again gets the new reason and keeps its time. */
const markStatement = `
  insert into invalid_phone_numbers (workspace_id, phone, reason, detected_at)
  select $1::uuid, given.phone, $3, now()
  from (select distinct unnest($2::text[]) as phone) as given
  order by given.phone
  on conflict (workspace_id, phone) do update set reason = excluded.reason`;

/**
 * Marks numbers as invalid.
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

/** Locks and deletes in primary key order. */
const removeStatement = withCitusForm(`
  with found as materialized (
    select invalid_phone_numbers.workspace_id, invalid_phone_numbers.phone
    from invalid_phone_numbers
    where invalid_phone_numbers.workspace_id = $1::uuid and invalid_phone_numbers.phone = any($2::text[])
    order by invalid_phone_numbers.phone
    for update
  )
  delete from invalid_phone_numbers using found
  where invalid_phone_numbers.workspace_id = found.workspace_id and invalid_phone_numbers.phone = found.phone`);

/**
 * Removes numbers from the list. Numbers that are not on it are ignored.
 *
 * @param phones E.164
 * @returns the number of removed numbers
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

/** Days for which a number that no profile has stays on the list, because a profile may get it. */
const KEPT_DAYS = 90;
const PAGE = 5000;

/** Start of the next page. */
export interface InvalidNumbersCursor {
  workspaceId: string;
  phone: string;
}

/** Reads a page of the primary key. */
const pageStatement = `
  select
    invalid_phone_numbers.workspace_id as "workspaceId", invalid_phone_numbers.phone,
    invalid_phone_numbers.detected_at < now() - make_interval(days => $4) as old
  from invalid_phone_numbers
  where (invalid_phone_numbers.workspace_id, invalid_phone_numbers.phone) > ($1::uuid, $2::text)
  order by invalid_phone_numbers.workspace_id, invalid_phone_numbers.phone
  limit $3`;

/** Deletes by primary key. Checks each number by profiles_phone; a join would read the whole index. */
const forgetStatement = withCitusForm(`
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
    ) is null`);

/**
 * Removes numbers that have been on the list for 90 days and that no profile has.
 *
 * @param after result of the previous call
 * @returns the start of the next page; undefined after the last page
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
