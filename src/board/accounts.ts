import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { validate } from 'uuid';
import type { Account as DashboardAccount } from '../generated/prisma/client.ts';
import { now, nowDate } from '../platform/clock.ts';
import type { Log } from '../platform/log.ts';
import { type Actor, audited, auditIn, recordAudit } from '../store/audit.ts';
import { hashApiKey } from '../store/credentials.ts';
import type { Database } from '../store/database.ts';
import { beginSession, endSessions, findSession, leaveSession, touchSession } from '../store/sessions.ts';
import { accountViewer, operatorViewer, type Viewer } from './access.ts';
import type { Proved } from './openid-connect.ts';
import { type Client, isSecret, LIFETIME_MS, newSecret } from './sessions.ts';

const derive = promisify<string, Buffer, number, object, Buffer>(scrypt);

/** 32 MB and some 0.2 s for each guess. Stored with the hash, so that it may grow later. */
const COST = { N: 32_768, r: 8, p: 3 };
const MAX_MEMORY = 64 * 1024 * 1024;
const HASH_BYTES = 32;

const SHORTEST = 12;
const LONGEST = 128;
const FEWEST_DIFFERENT = 5;

/** For whoever chooses one. */
export const PASSWORD_RULE = `Use at least ${SHORTEST} characters, for example several unrelated words.`;

/** What is wrong with a new password, in words; nothing when it will do. Length counts for more than mixture. */
export function passwordProblem(password: string, email: string): string | undefined {
  const characters = [...password];
  if (characters.length < SHORTEST || characters.length > LONGEST)
    return `A password must have ${SHORTEST} to ${LONGEST} characters.`;
  if (new Set(characters).size < FEWEST_DIFFERENT)
    return `A password must have at least ${FEWEST_DIFFERENT} different characters.`;
  const [name = ''] = email.split('@');
  const lowered = password.toLowerCase();
  if (lowered.includes(email) || (name.length > 3 && lowered.includes(name)))
    return 'A password must not contain your email address.';
  return undefined;
}

/** The form that is stored: `scrypt$N$r$p$salt$hash`. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(16);
  const hash = await derive(password.normalize('NFKC'), salt, HASH_BYTES, { ...COST, maxmem: MAX_MEMORY });
  const { N, r, p } = COST;
  return ['scrypt', N, r, p, salt.toString('base64url'), hash.toString('base64url')].join('$');
}

/** @param stored what `hashPassword` made */
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

/** Companies may share a person: each account of an address has its own password. Bounds the cost of a guess. */
const MOST_ACCOUNTS = 5;

/** Guesses that are computed at a time: each takes 32 MB. */
const MOST_GUESSES = 4;

/** Where somebody comes from who signs in, and the secret of the session that this browser had, which ends then. */
export interface Arrival {
  client: Client;
  previous: string | undefined;
}

type SigningIn = Pick<DashboardAccount, 'id' | 'userName' | 'companyId' | 'sessionEpoch'>;

const TOKEN = /^[\w-]{43}$/;

/** Dashboard accounts as the console needs them. */
export function createAccounts({ prisma, pool }: Pick<Database, 'prisma' | 'pool'>, log: Log) {
  let guesses = 0;
  // Compared with where there is no account, so that an answer takes as long.
  const decoy = hashPassword('no account has this password');

  /** @returns the value of the cookie; nothing when the account was deactivated or signed out meanwhile */
  async function begin(
    account: SigningIn,
    { client, previous }: Arrival,
    through?: 'openid_connect',
  ): Promise<string | undefined> {
    const { id, companyId, sessionEpoch: epoch } = account;
    const secret = newSecret();
    const endsAt = new Date(now() + LIFETIME_MS);
    const session = await audited(pool, personOf(account, client), async (tx) => {
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
    /** Whether so many passwords are being compared that another has to wait. */
    isBusy: () => guesses >= MOST_GUESSES,

    /**
     * Begins a session. @returns the value of its cookie; nothing when there is no active account with this password
     */
    async signIn(
      { email, password }: { email: string; password: string },
      arrival: Arrival,
    ): Promise<string | undefined> {
      guesses++;
      try {
        const found = await prisma.account.findMany({
          where: { email, active: true, passwordHash: { not: null } },
          take: MOST_ACCOUNTS,
        });
        if (found.length === 0) await isPassword(password, await decoy);
        for (const account of found) {
          if (!(await isPassword(password, account.passwordHash!))) continue;
          const secret = await begin(account, arrival);
          if (secret !== undefined) return secret;
        }
        return undefined;
      } finally {
        guesses--;
      }
    },

    /** The same for whoever an OpenID provider vouches for, whose word holds for one company. */
    async signInProved(
      { email, company }: Proved,
      arrival: Arrival,
    ): Promise<{ secret: string } | { refused: 'unknown' | 'inactive'; companyId: string }> {
      const which = validate(company) ? [{ id: company }, { name: company }] : [{ name: company }];
      const account = await prisma.account.findFirst({
        where: { email, company: { OR: which } },
        select: { id: true, userName: true, companyId: true, sessionEpoch: true, active: true },
      });
      // Of that company alone: others, where the address has an account too, have not been asked.
      if (account === null) return { refused: 'unknown', companyId: '' };
      const secret = account.active ? await begin(account, arrival, 'openid_connect') : undefined;
      return secret === undefined ? { refused: 'inactive', companyId: account.companyId } : { secret };
    },

    /** Ends the session that a browser had, where it is an account's: it signs in as BOARD_USER, and does not wait. */
    leave(secret: string | undefined, user: string, { address }: Client): void {
      if (!isSecret(secret)) return;
      const actor: Actor = { kind: 'operator', name: user, via: 'dashboard', address };
      audited(pool, actor, async (tx) => {
        return { result: undefined, entries: await leaveSession(tx, hashApiKey(secret)) };
      }).catch((error) => log.warn({ err: error }, 'previous session of a browser was not ended'));
    },

    /** Who has opened the session of a cookie, and may do what now; nothing when it is over. */
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

    /** Ends the session that the viewer has come with. */
    async signOut({ accountId, user, sessionId }: Viewer, client: Client): Promise<void> {
      await audited(pool, personOf({ id: accountId!, userName: user }, client), async (tx) => {
        const entries = await endSessions(tx, [sessionId], { accountId });
        return { result: undefined, entries };
      });
    },

    /** Not waited for: the operator gets in without Postgres, and then the log alone tells of it. */
    tellOfOperator(action: 'sessions.begin' | 'sessions.end', user: string, { address }: Client): void {
      const actor: Actor = { kind: 'operator', name: user, via: 'dashboard', address };
      const subject = { kind: 'operator', id: 'BOARD_USER' };
      recordAudit(pool, actor, [{ action, subject }]).catch((error) =>
        log.warn({ err: error, action }, 'audit entry was not written: Postgres does not answer'),
      );
    },

    /** Whoever knows BOARD_USER may do everything. @throws when Postgres does not answer */
    operator: (user: string): Promise<Viewer> => operatorViewer(prisma, user),

    /** The address that an invitation is for, while it can be used. */
    async invited(token: string): Promise<string | undefined> {
      const account = await prisma.account.findFirst({ where: usable(token), select: { email: true } });
      return account?.email;
    },

    /** Sets the password of an invitation, once; whoever was signed in with the old one no longer is. */
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
  // What is no token has the hash of none.
  const hash = TOKEN.test(token) ? hashApiKey(token) : Buffer.alloc(0);
  return { invitationHash: new Uint8Array(hash), invitationExpiresAt: { gt: nowDate() }, active: true };
}
