import type { Prisma } from '../generated/prisma/client.ts';
import { nowDate } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import type { AuditEntry } from './audit.ts';
import type { Database, Pool } from './database.ts';

/** Maximum number of sessions per account. The oldest ones are deleted. */
const MAX_PER_ACCOUNT = 100;

/** Properties of a new session. */
interface NewSession {
  accountId: string;
  companyId: string;
  /** The account's `session_epoch`. */
  epoch: number;
  /** SHA-256 of the cookie's value. */
  secretHash: Buffer;
  endsAt: Date;
  address: string | undefined;
  agent: string;
}

/**
 * Signs an account in. The account may have been deactivated, or its sessions ended, while the password was verified.
 *
 * @returns the session's id; undefined if the account was deleted, is inactive or was signed out
 */
export async function beginSession(
  tx: Prisma.TransactionClient,
  { epoch, secretHash, address, ...session }: NewSession,
): Promise<string | undefined> {
  const { accountId } = session;
  const { count } = await tx.account.updateMany({
    where: { id: accountId, active: true, sessionEpoch: epoch },
    data: { lastSignInAt: nowDate(), version: { increment: 1 } },
  });
  if (count === 0) return undefined;
  const id = newId();
  const bytes = new Uint8Array(secretHash);
  await tx.session.create({ data: { ...session, id, epoch, secretHash: bytes, address: address ?? null } });
  const oldest = await tx.session.findMany({
    where: { accountId },
    orderBy: { id: 'desc' },
    select: { id: true },
    skip: MAX_PER_ACCOUNT,
  });
  if (oldest.length > 0) await tx.session.deleteMany({ where: { id: { in: oldest.map((one) => one.id) } } });
  return id;
}

/** A session with its account and the account's permissions. */
interface FoundSession {
  id: string;
  account: {
    id: string;
    userName: string;
    companyId: string;
    companyPermissions: string[];
    appGroups: unknown;
  };
  /** Whether the session was last updated more than a minute ago. */
  isStale: boolean;
}

/** Reads one row by the unique index on the hash, and one by primary key. */
const findSessionStatement = `
  select sessions.id, sessions.seen_at < now() - interval '1 minute' as "isStale",
    jsonb_build_object('id', accounts.id, 'userName', accounts.user_name, 'companyId', accounts.company_id,
      'companyPermissions', accounts.company_permissions, 'appGroups', accounts.app_groups) as account
  from sessions
  join accounts on accounts.id = sessions.account_id
  where sessions.secret_hash = $1::bytea and sessions.ends_at > now()
    and accounts.active and accounts.session_epoch = sessions.epoch`;

/** Returns the session of a cookie unless it has ended. */
export async function findSession(pool: Pool, secretHash: Buffer): Promise<FoundSession | undefined> {
  const { rows } = await pool.query<FoundSession>({
    name: 'find-session',
    text: findSessionStatement,
    values: [secretHash],
  });
  return rows[0];
}

/** Updates by primary key. */
const touchSessionStatement = `
  update sessions set seen_at = now(), address = $2::text, agent = $3::text where sessions.id = $1::uuid`;

/** Records the time, address and user agent of the last request of a session. */
export async function touchSession(
  pool: Pool,
  id: string,
  { address, agent }: Pick<NewSession, 'address' | 'agent'>,
): Promise<void> {
  await pool.query(touchSessionStatement, [id, address ?? null, agent]);
}

/** A session in a list. */
export interface ListedSession {
  id: string;
  accountId: string;
  companyId: string;
  userName: string;
  beganAt: Date;
  endsAt: Date;
  seenAt: Date;
  address: string | null;
  agent: string;
}

/** Sessions of an account, of a company, or all sessions. */
export interface SessionScope {
  accountId?: string | undefined;
  companyId?: string | undefined;
}

/** Returns the SQL condition of a scope. Its parameters are appended to `values`. */
function scopeSql({ accountId, companyId }: SessionScope, values: unknown[]): string {
  const of = accountId === undefined ? '' : ` and sessions.account_id = $${values.push(accountId)}::uuid`;
  return companyId === undefined ? of : `${of} and sessions.company_id = $${values.push(companyId)}::uuid`;
}

/**
 * Returns a page of the active sessions, newest first, by the index of the account, of the company, or of
 * all.
 */
export async function listSessions(
  pool: Pool,
  scope: SessionScope,
  { before, limit }: { before?: string | undefined; limit: number },
): Promise<ListedSession[]> {
  const values: unknown[] = [limit];
  const beforeCondition = before === undefined ? '' : ` and sessions.id < $${values.push(before)}::uuid`;
  const text = `
    select sessions.id, sessions.account_id as "accountId", sessions.company_id as "companyId",
      accounts.user_name as "userName", sessions.began_at as "beganAt", sessions.ends_at as "endsAt",
      sessions.seen_at as "seenAt", sessions.address, sessions.agent
    from sessions
    join accounts on accounts.id = sessions.account_id
    where sessions.ends_at > now() and accounts.active and accounts.session_epoch = sessions.epoch
      ${scopeSql(scope, values)}${beforeCondition}
    order by sessions.id desc
    limit $1::integer`;
  const { rows } = await pool.query<ListedSession>(text, values);
  return rows;
}

/** Ends sessions of the scope immediately. @returns their audit entries */
export async function endSessions(
  tx: Pick<Pool, 'query'>,
  ids: readonly string[],
  scope: SessionScope,
): Promise<AuditEntry[]> {
  const values: unknown[] = [ids];
  const text = `
    delete from sessions
    where sessions.id = any($1::uuid[])${scopeSql(scope, values)}
    returning sessions.id, sessions.account_id as "accountId", sessions.company_id as "companyId"`;
  const { rows } = await tx.query<EndedSession>(text, values);
  return rows.map(entryOf);
}

type EndedSession = Pick<ListedSession, 'id' | 'accountId' | 'companyId'>;

const entryOf = ({ id, accountId, companyId }: EndedSession): AuditEntry => ({
  ...{ action: 'sessions.end', subject: { kind: 'account', id: accountId }, companyId },
  detail: { session: id },
});

/** Ends the session of a cookie when its user signs out. @returns the audit entry */
export async function leaveSession(tx: Prisma.TransactionClient, secretHash: Buffer): Promise<AuditEntry[]> {
  const session = await tx.session.findUnique({
    where: { secretHash: new Uint8Array(secretHash) },
    select: { id: true, accountId: true, companyId: true },
  });
  if (!session) return [];
  const { count } = await tx.session.deleteMany({ where: { id: session.id } });
  return count === 0 ? [] : [entryOf(session)];
}

// Deletes by the index on the end.
const forgetSessionsStatement = `
  delete from sessions
  where sessions.id in (select old.id from sessions as old where old.ends_at < now() order by old.ends_at limit 10000)`;

/** Deletes expired sessions. */
export async function forgetSessions(pool: Pool): Promise<void> {
  await pool.query(forgetSessionsStatement);
}

/** Maximum number of accounts that `accountsByEmail` returns. */
const MAX_ACCOUNTS = 1000;

/** Returns accounts by their addresses, in all companies. A user may have accounts in several companies. */
export function accountsByEmail(
  { prisma }: Pick<Database, 'prisma'>,
  emails: readonly string[],
): Promise<{ id: string; companyId: string; email: string }[]> {
  return prisma.account.findMany({
    where: { email: { in: [...emails] } },
    select: { id: true, companyId: true, email: true },
    take: MAX_ACCOUNTS,
  });
}
