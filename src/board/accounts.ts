import { randomBytes, scrypt, timingSafeEqual } from 'node:crypto';
import { promisify } from 'node:util';
import { hashApiKey } from '../store/credentials.ts';
import type { Database } from '../store/database.ts';
import { accountViewer, operatorViewer, type Viewer } from './access.ts';
import type { Person } from './sessions.ts';

const derive = promisify<string, Buffer, number, object, Buffer>(scrypt);

/** 32 MB and some 0.2 s for each guess. Stored with the hash, so that it may grow later. */
const COST = { N: 32_768, r: 8, p: 3 };
const MAX_MEMORY = 64 * 1024 * 1024;
const HASH_BYTES = 32;

const SHORTEST = 12;
const LONGEST = 128;
const FEWEST_DIFFERENT = 5;

/** For whoever chooses one. */
export const PASSWORD_RULE = `It has ${SHORTEST} characters or more; a few words that do not belong together will do.`;

/** What is wrong with a new password, in words; nothing when it will do. Length counts for more than mixture. */
export function passwordProblem(password: string, email: string): string | undefined {
  const characters = [...password];
  if (characters.length < SHORTEST || characters.length > LONGEST)
    return `A password has ${SHORTEST} to ${LONGEST} characters.`;
  if (new Set(characters).size < FEWEST_DIFFERENT)
    return `A password has at least ${FEWEST_DIFFERENT} different characters.`;
  const [name = ''] = email.split('@');
  const lowered = password.toLowerCase();
  if (lowered.includes(email) || (name.length > 3 && lowered.includes(name)))
    return 'A password does not contain your email address.';
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

const TOKEN = /^[\w-]{43}$/;

/** Dashboard accounts as the dashboard needs them. */
export function createAccounts({ prisma }: Pick<Database, 'prisma'>) {
  let guesses = 0;
  // Compared with where there is no account, so that an answer takes as long.
  const decoy = hashPassword('nobody has this password');

  return {
    /** Whether so many passwords are being compared that another has to wait. */
    isBusy: () => guesses >= MOST_GUESSES,

    /** Signs in, and notes the time. @returns nothing when there is no active account with this password */
    async signIn(email: string, password: string): Promise<Person | undefined> {
      guesses++;
      try {
        const found = await prisma.account.findMany({
          where: { email, active: true, passwordHash: { not: null } },
          take: MOST_ACCOUNTS,
        });
        if (found.length === 0) await isPassword(password, await decoy);
        for (const { id, passwordHash, sessionEpoch: epoch } of found) {
          if (!(await isPassword(password, passwordHash!))) continue;
          const { count } = await prisma.account.updateMany({
            // It may have been deactivated while the password was compared.
            where: { id, active: true, sessionEpoch: epoch },
            data: { lastSignInAt: new Date(), version: { increment: 1 } },
          });
          if (count === 1) return { accountId: id, epoch };
        }
        return undefined;
      } finally {
        guesses--;
      }
    },

    /** What a person who has signed in may do now; nothing when the account is gone or was signed out. */
    async rightsOf({ accountId, epoch }: Person): Promise<Viewer | undefined> {
      const account = await prisma.account.findUnique({
        where: { id: accountId, active: true, sessionEpoch: epoch },
        select: { id: true, userName: true, companyId: true, companyPermissions: true, appGroups: true },
      });
      return account ? accountViewer(prisma, account) : undefined;
    },

    /** Whoever knows BOARD_USER may do everything. @throws when Postgres does not answer */
    operator: (user: string): Promise<Viewer> => operatorViewer(prisma, user),

    /** The address that an invitation is for, while it can be used. */
    async invited(token: string): Promise<string | undefined> {
      const account = await prisma.account.findFirst({ where: usable(token), select: { email: true } });
      return account?.email;
    },

    /** Sets the password of an invitation, once; whoever was signed in with the old one no longer is. */
    async accept(token: string, password: string): Promise<'done' | 'ended' | { problem: string }> {
      const account = await prisma.account.findFirst({
        where: usable(token),
        select: { id: true, email: true },
      });
      if (!account) return 'ended';
      const problem = passwordProblem(password, account.email);
      if (problem) return { problem };
      const passwordHash = await hashPassword(password);
      const { count } = await prisma.account.updateMany({
        where: { id: account.id, ...usable(token) },
        data: {
          passwordHash,
          invitationHash: null,
          invitationExpiresAt: null,
          sessionEpoch: { increment: 1 },
        },
      });
      return count === 1 ? 'done' : 'ended';
    },
  };
}

export type Accounts = ReturnType<typeof createAccounts>;

function usable(token: string) {
  // What is no token has the hash of none.
  const hash = TOKEN.test(token) ? hashApiKey(token) : Buffer.alloc(0);
  return { invitationHash: new Uint8Array(hash), invitationExpiresAt: { gt: new Date() }, active: true };
}
