import { createHmac, randomBytes } from 'node:crypto';
import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { backOff, poll } from '../platform/poll.ts';
import { type AuditEntry, recordAudit } from '../store/audit.ts';
import { type Connection, type Database, storable } from '../store/database.ts';
import { accountsByEmail } from '../store/sessions.ts';
import { inTransaction } from '../store/transactions.ts';
import type { Client } from './sessions.ts';

/** Number of failed attempts after which the first wait starts. */
const FREE_FAILURES = 5;

/** Duration of the first wait in milliseconds. Each further failure doubles it. */
const FIRST_WAIT_MS = 1000;

/** Maximum wait in milliseconds. The owner can sign in again within a minute, and guessing stays impractical. */
const MAX_WAIT_MS = 60_000;

/**
 * Slows down password guessing. After several wrong passwords in a row, all sign-ins to the account have to wait, even
 * with the correct password and from any address. Existing sessions continue.
 */
export function createLockout(now: () => number = Date.now) {
  let failures = 0;
  let nextWait = backOff(FIRST_WAIT_MS, MAX_WAIT_MS);
  let wait = 0;
  let lockedUntil = 0;

  function beginWait(): void {
    if (wait > 0) lockedUntil = now() + wait;
  }

  return {
    /** Seconds until the next attempt is allowed, rounded up; 0 if it is allowed now. */
    secondsLeft(): number {
      return Math.max(0, Math.ceil((lockedUntil - now()) / 1000));
    },

    /** Counts an attempt as failed before the password is compared, so that concurrent attempts are all counted. */
    failed(): void {
      if (++failures >= FREE_FAILURES) wait = nextWait();
      beginWait();
    },

    /** Restarts the wait after the password comparison, which uses up a part of it. */
    answered: beginWait,

    succeeded(): void {
      failures = 0;
      nextWait = backOff(FIRST_WAIT_MS, MAX_WAIT_MS);
      wait = 0;
      lockedUntil = 0;
    },
  };
}

/** Length of a window in milliseconds. */
const MINUTE_MS = 60_000;

/**
 * Limits actions per key and minute, in windows that all keys share. Keys belong to signed-in users, so their number is
 * bounded by the number of accounts.
 */
export function createMinuteLimit(max: number, now: () => number = Date.now) {
  let counts = new Map<string, number>();
  let endsAt = 0;

  function current(): Map<string, number> {
    if (now() >= endsAt) {
      counts = new Map();
      endsAt = now() + MINUTE_MS;
    }
    return counts;
  }

  return {
    /** Seconds until the next action is allowed, rounded up; 0 if it is allowed now. */
    secondsLeft: (key: string) => ((current().get(key) ?? 0) < max ? 0 : Math.ceil((endsAt - now()) / 1000)),
    count: (key: string) => void current().set(key, (counts.get(key) ?? 0) + 1),
  };
}

type Lockout = ReturnType<typeof createLockout>;

/**
 * Milliseconds without an attempt after which a lockout is reset. An attacker who continues is held to one guess per
 * minute.
 */
const FORGOTTEN_MS = 3_600_000;

/**
 * Keeps a lockout per name, whether or not the account exists, so that responses do not reveal accounts. Names share
 * 65,536 slots, which bounds memory without evictions. The assignment to slots is a secret of this process.
 */
export function createLockouts(now: () => number = Date.now) {
  const secret = randomBytes(32);
  const slots = new Map<number, { lockout: Lockout; triedAt: number }>();

  function find(slot: number): Lockout | undefined {
    const entry = slots.get(slot);
    if (entry && now() - entry.triedAt < FORGOTTEN_MS) return entry.lockout;
    slots.delete(slot);
    return undefined;
  }

  return {
    /** Lockout of BOARD_USER. Guesses at other names do not affect it. */
    ofOperator: createLockout(now),

    of(name: string): Lockout {
      const slot = createHmac('sha256', secret).update(name).digest().readUInt16BE(0);
      const remembered = () => {
        const lockout = find(slot) ?? createLockout(now);
        slots.set(slot, { lockout, triedAt: now() });
        return lockout;
      };
      return {
        secondsLeft: () => find(slot)?.secondsLeft() ?? 0,
        failed: () => remembered().failed(),
        answered: () => remembered().answered(),
        succeeded: () => void slots.delete(slot),
      };
    },

    /** Number of slots in use. */
    size: () => slots.size,
  };
}

export type Lockouts = ReturnType<typeof createLockouts>;

/** Milliseconds between two writes of failed sign-ins to the audit. */
const TELL_MS = 60_000;

/**
 * Maximum number of names counted individually per interval, about as many as can be tried. Further names are counted
 * together.
 */
const MAX_NAMES = 1000;

interface Failed {
  count: number;
  address: string | undefined;
}

/** Keys that cannot collide with an account's name: stored names have no leading space. */
const OPERATOR = ' operator';

const OTHERS = ' others';

/** Key of an address in one company. The separator U+0000 cannot occur in stored text. */
const nameInCompany = (email: string, company: string) => `${email}\0${company}`;

const addressOf = (name: string) => name.split('\0')[0]!;

/**
 * Counts failed sign-ins by name and writes them to the audit once a minute, so that fast guessing creates a bounded
 * number of entries. A name that matches no account is not written, because it may be a password.
 */
export function createFailedSignIns(
  database: Pick<Database, 'pool' | 'prisma'>,
  log: Log,
): Service & { note(name: string | undefined, client: Client, company?: string): void } {
  let byName = new Map<string, Failed>();

  function add(name: string, { count, address }: Failed): void {
    const isListed = byName.has(name) || byName.size < MAX_NAMES || name === OPERATOR;
    const under = isListed ? name : OTHERS;
    byName.set(under, { count: count + (byName.get(under)?.count ?? 0), address });
  }

  async function report(): Promise<void> {
    const names = byName;
    byName = new Map();
    if (names.size === 0) return;
    try {
      const accounts = await accountsByEmail(database, [...new Set([...names.keys()].map(addressOf))]);
      // Written in one transaction. If it fails, the counts are added to the next interval.
      await inTransaction(database.pool, (tx) => write(tx, names, accounts));
    } catch (error) {
      for (const [name, failed] of names) add(name, failed);
      log.warn({ err: error }, 'failed sign-ins were not written to the audit log; will retry');
    }
  }

  async function write(
    tx: Connection,
    names: Map<string, Failed>,
    accounts: Awaited<ReturnType<typeof accountsByEmail>>,
  ): Promise<void> {
    const record = ({ count, address }: Failed, entry: Pick<AuditEntry, 'subject' | 'companyId'>) =>
      recordAudit(tx, { kind: 'nobody', name: '', via: 'dashboard', address }, [
        { action: 'sign_ins.fail', ...entry, detail: { count } },
      ]);
    const left = new Map(names);
    for (const { id, companyId, email } of accounts)
      for (const name of [email, nameInCompany(email, companyId)]) {
        const failed = names.get(name);
        if (failed) await record(failed, { subject: { kind: 'account', id }, companyId });
        left.delete(name);
      }
    const ofOperator = left.get(OPERATOR);
    left.delete(OPERATOR);
    if (ofOperator) await record(ofOperator, { subject: { kind: 'operator', id: 'BOARD_USER' } });
    const last = [...left.values()].at(-1);
    const count = [...left.values()].reduce((sum, one) => sum + one.count, 0);
    if (last) await record({ ...last, count }, { subject: { kind: 'account', id: 'unknown' } });
  }

  const reporter = poll(TELL_MS, report);
  return {
    name: 'failed sign-ins',
    /**
     * Counts a failed sign-in.
     * @param name account name in lower case; undefined for BOARD_USER
     * @param company the only company that was tried; absent if the accounts of all companies were tried
     */
    note(name, { address }, company) {
      // A name that Postgres cannot store would make the whole transaction fail.
      const stored = name === undefined ? OPERATOR : storable(name).trim();
      add(company === undefined ? stored : nameInCompany(stored, company), { count: 1, address });
    },
    async stop() {
      await reporter.stop();
      await report();
    },
  };
}

export type FailedSignIns = ReturnType<typeof createFailedSignIns>;
