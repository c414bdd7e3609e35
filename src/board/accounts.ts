import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import type { Account as DashboardAccount } from '../generated/prisma/client.ts';
import { now, nowDate } from '../platform/clock.ts';
import type { Log } from '../platform/log.ts';
import { type Actor, audited, auditedByPrisma, auditIn, recordAudit } from '../store/audit.ts';
import { hashApiKey } from '../store/credentials.ts';
import type { Database } from '../store/database.ts';
import { byNameOrId } from '../store/name-or-id.ts';
import { beginSession, endSessions, findSession, leaveSession, touchSession } from '../store/sessions.ts';
import { accountViewer, operatorViewer, type Viewer } from './access.ts';
import type { VerifiedIdentity } from './openid-connect.ts';
import { type Client, isSecret, LIFETIME_MS, newSecret } from './sessions.ts';

const derive = promisify<string, Buffer, number, object, Buffer>(scrypt);

/**
 * scrypt parameters: 32 MB and about 0.2 s per guess. They are stored with the hash, so that they can be raised later.
 */
const COST = { N: 32_768, r: 8, p: 3 };
const MAX_MEMORY = 64 * 1024 * 1024;
const HASH_BYTES = 32;

const MIN_PASSWORD_LENGTH = 12;
const MAX_PASSWORD_LENGTH = 128;
const FEWEST_DIFFERENT = 5;

/** Hint for users who choose a password. */
export const PASSWORD_RULE = `Use at least ${MIN_PASSWORD_LENGTH} characters, for example several unrelated words.`;

/** Returns why a new password is not acceptable, or undefined if it is. Length matters more than character classes. */
export function passwordProblem(password: string, email: string): string | undefined {
  const characters = [...password];
  if (characters.length < MIN_PASSWORD_LENGTH || characters.length > MAX_PASSWORD_LENGTH)
    return `A password must have ${MIN_PASSWORD_LENGTH} to ${MAX_PASSWORD_LENGTH} characters.`;
  if (new Set(characters).size < FEWEST_DIFFERENT)
    return `A password must have at least ${FEWEST_DIFFERENT} different characters.`;
  const [name = ''] = email.split('@');
  const lowered = password.toLowerCase();
  if (lowered.includes(email) || (name.length > 3 && lowered.includes(name)))
    return 'A password must not contain your email address.';
  return undefined;
}

/** Hashes a password in the stored form `scrypt$N$r$p$salt$hash`. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const hash = await derive(password.normalize('NFKC'), salt, HASH_BYTES, { ...COST, maxmem: MAX_MEMORY });
  const { N, r, p } = COST;
  return ['scrypt', N, r, p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

/** @param stored a hash made by `hashPassword` */
export async function isPassword(password: string, stored: string): Promise<boolean> {
  const [, N, r, p, salt = '', hash = ''] = stored.split('$');
  const expected = Buffer.from(hash, 'base64url');
  const cost = { N: Number(N), r: Number(r), p: Number(p), maxmem: MAX_MEMORY };
  const given = await derive(
    password.normalize('NFKC'),
    Buffer.from(salt, 'base64url'),
    expected.length,
    cost,
  );
  return timingSafeEqual(given, expected);
}

/** Maximum accounts per sign-in. An address can have an account in several companies, each with its own password. */
const MAX_ACCOUNTS = 5;

/** Password checks that run at the same time. Each needs 32 MB. */
const MAX_PASSWORD_CHECKS = 4;

/**
 * The client that signs in, and the secret of the browser's previous session. A successful sign-in ends that session.
 */
export interface Arrival {
  client: Client;
  previous: string | undefined;
}

type SigningIn = Pick<DashboardAccount, 'id' | 'userName' | 'companyId' | 'sessionEpoch'>;

const TOKEN = /^[\w-]{43}$/;

/** Creates the sign-in, session and invitation functions for accounts. */
export function createAccounts({ prisma, pool }: Pick<Database, 'prisma' | 'pool'>, log: Log) {
  let guesses = 0;
  // Compared if no account matches, so that the response takes equally long.
  const decoy = hashPassword('no account has this password');

  /** @returns the session cookie's value; undefined if the account was deactivated or signed out in the meantime */
  async function begin(
    account: SigningIn,
    { client, previous }: Arrival,
    through?: 'openid_connect',
  ): Promise<string | undefined> {
    const { id, companyId, sessionEpoch: epoch } = account;
    const secret = newSecret();
    const endsAt = new Date(now() + LIFETIME_MS);
    const session = await auditedByPrisma(prisma, personOf(account, client), async (tx) => {
      const result = await beginSession(tx, {
        ...{ accountId: id, companyId, epoch, secretHash: hashApiKey(secret), endsAt, ...client },
      });
      if (result === undefined) return { result, entries: [] };
      const left = isSecret(previous) ? await leaveSession(tx, hashApiKey(previous)) : [];
      const detail = { session: result, ...(through && { through }) };
      const entry = {
        action: 'sessions.begin' as const,
        subject: { kind: 'account', id },
        companyId,
        detail,
      };
      return { result, entries: [...left, entry] };
    });
    if (session === undefined) return undefined;
    log.info({ account_id: id, through }, 'signed in to the console');
    return secret;
  }

  return {
    /** Whether a further password check has to wait. */
    isBusy: () => guesses >= MAX_PASSWORD_CHECKS,

    /**
     * Starts a session.
     * @returns the session cookie's value; undefined if no active account has this password
     */
    async signIn(
      { email, password }: { email: string; password: string },
      arrival: Arrival,
    ): Promise<string | undefined> {
      guesses++;
      try {
        const accounts = await prisma.account.findMany({
          where: { email, active: true, passwordHash: { not: null } },
          take: MAX_ACCOUNTS,
        });
        if (accounts.length === 0) await isPassword(password, await decoy);
        for (const account of accounts) {
          if (!(await isPassword(password, account.passwordHash!))) continue;
          const secret = await begin(account, arrival);
          if (secret !== undefined) return secret;
        }
        return undefined;
      } finally {
        guesses--;
      }
    },

    /** Starts a session for a user whom an OpenID provider authenticated. The provider is trusted for one company. */
    async signInProved(
      { email, company }: VerifiedIdentity,
      arrival: Arrival,
    ): Promise<{ secret: string } | { refused: 'unknown' | 'inactive'; companyId: string }> {
      const account = await prisma.account.findFirst({
        where: { email, company: byNameOrId(company) },
        select: { id: true, userName: true, companyId: true, sessionEpoch: true, active: true },
      });
      // The provider is trusted for this company only, so accounts of the address in other companies are not
      // considered.
      if (account === null) return { refused: 'unknown', companyId: '' };
      const secret = account.active ? await begin(account, arrival, 'openid_connect') : undefined;
      return secret === undefined ? { refused: 'inactive', companyId: account.companyId } : { secret };
    },

    /** Ends a browser's previous account session when it signs in as BOARD_USER. The sign-in does not wait for this. */
    leave(secret: string | undefined, user: string, { address }: Client): void {
      if (!isSecret(secret)) return;
      const actor: Actor = { kind: 'operator', name: user, via: 'dashboard', address };
      auditedByPrisma(prisma, actor, async (tx) => {
        return { result: undefined, entries: await leaveSession(tx, hashApiKey(secret)) };
      }).catch((error) =>
        log.warn(
          { err: error },
          'previous session of a browser could not be ended; it stays valid until it expires',
        ),
      );
    },

    /** Returns the viewer of a session cookie with current rights; undefined if the session has ended. */
    async arrived(secret: string | undefined, client: Client): Promise<Viewer | undefined> {
      if (!isSecret(secret)) return undefined;
      const session = await findSession(pool, hashApiKey(secret));
      if (!session) return undefined;
      if (session.isStale)
        await touchSession(pool, session.id, client).catch((error) =>
          log.warn({ err: error }, 'last use of a session was not recorded'),
        );
      return { ...(await accountViewer(prisma, session.account)), sessionId: session.id };
    },

    /** Ends the viewer's current session. */
    async signOut({ accountId, user, sessionId }: Viewer, client: Client): Promise<void> {
      await audited(pool, personOf({ id: accountId!, userName: user }, client), async (tx) => {
        const entries = await endSessions(tx, [sessionId], { accountId });
        return { result: undefined, entries };
      });
    },

    /** Records the operator's sign-in or sign-out without waiting. If Postgres is down, only the log records it. */
    auditOperator(action: 'sessions.begin' | 'sessions.end', user: string, { address }: Client): void {
      const actor: Actor = { kind: 'operator', name: user, via: 'dashboard', address };
      const subject = { kind: 'operator', id: 'BOARD_USER' };
      recordAudit(pool, actor, [{ action, subject }]).catch((error) =>
        log.warn({ err: error, action }, 'audit entry was not written: Postgres does not answer'),
      );
    },

    /**
     * Returns the viewer for BOARD_USER.
     * @throws if Postgres does not answer
     */
    operator: (user: string): Promise<Viewer> => operatorViewer(prisma, user),

    /** Returns the email address of a valid invitation; undefined if it was used or has expired. */
    async invited(token: string): Promise<string | undefined> {
      const account = await prisma.account.findFirst({ where: usable(token), select: { email: true } });
      return account?.email;
    },

    /** Sets the password of an invitation once, and ends sessions that were started with the old password. */
    async accept(
      token: string,
      password: string,
      client: Client,
    ): Promise<'done' | 'ended' | { problem: string }> {
      const account = await prisma.account.findFirst({
        where: usable(token),
        select: { id: true, email: true, userName: true, companyId: true },
      });
      if (!account) return 'ended';
      const problem = passwordProblem(password, account.email);
      if (problem) return { problem };
      const passwordHash = await hashPassword(password);
      const { id, companyId } = account;
      return prisma.$transaction(async (tx) => {
        const { count } = await tx.account.updateMany({
          where: { id, ...usable(token) },
          data: {
            ...{ passwordHash, invitationHash: null, invitationExpiresAt: null },
            sessionEpoch: { increment: 1 },
          },
        });
        if (count === 0) return 'ended';
        const subject = { kind: 'account', id };
        await auditIn(tx, personOf(account, client), [{ action: 'invitations.accept', subject, companyId }]);
        return 'done';
      });
    },
  };
}

export type Accounts = ReturnType<typeof createAccounts>;

function personOf({ id, userName }: { id: string; userName: string }, { address }: Client): Actor {
  return { kind: 'account', id, name: userName, via: 'dashboard', address };
}

function usable(token: string) {
  // A malformed token gets an empty hash, which matches no invitation.
  const hash = TOKEN.test(token) ? hashApiKey(token) : Buffer.alloc(0);
  return { invitationHash: new Uint8Array(hash), invitationExpiresAt: { gt: nowDate() }, active: true };
}
