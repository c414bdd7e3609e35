import { hashApiKey } from '../admin/api-keys.ts';
import type { Database } from '../store/database.ts';
import { hashPassword, isPassword, passwordProblem } from './passwords.ts';
import type { Person } from './sessions.ts';

/** Company permissions that open all of the dashboard; whoever has neither may only look. */
const FULL = ['admin', 'manage_company_settings'];

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
    async rightsOf({ accountId, epoch }: Person): Promise<{ user: string; readOnly: boolean } | undefined> {
      const account = await prisma.account.findUnique({
        where: { id: accountId, active: true, sessionEpoch: epoch },
        select: { userName: true, companyPermissions: true },
      });
      if (!account) return undefined;
      const readOnly = !account.companyPermissions.some((name) => FULL.includes(name));
      return { user: account.userName, readOnly };
    },

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
