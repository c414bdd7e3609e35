import { createHmac, randomBytes } from 'node:crypto';
import type { Service } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import { backOff, poll } from '../platform/poll.ts';
import { type AuditEntry, recordAudit } from '../store/audit.ts';
import { type Connection, type Pool, storable } from '../store/database.ts';
import { accountsByEmail } from '../store/sessions.ts';
import { inTransaction } from '../store/transactions.ts';
import type { Client } from './sessions.ts';

/** A person may mistype this often before the first wait. */
const FREE_FAILURES = 5;

/** The first wait; each further failure doubles it. */
const FIRST_WAIT_MS = 1000;

/** Short enough that the owner gets in again within a minute, long enough that guessing is hopeless. */
const LONGEST_WAIT_MS = 60_000;

/**
 * Slows guessing down. After some wrong passwords in a row nobody can sign in to an account for a while, with the right
 * one neither, whatever address a guess comes from. Whoever is signed in stays so.
 */
export function createLockout(now: () => number = Date.now) {
  let failures = 0;
  let nextWait = backOff(FIRST_WAIT_MS, LONGEST_WAIT_MS);
  let wait = 0;
  let lockedUntil = 0;

  function beginWait(): void {
    if (wait > 0) lockedUntil = now() + wait;
  }

  return {
    /** Seconds to wait until the next attempt, rounded up; 0: none. */
    secondsLeft(): number {
      return Math.max(0, Math.ceil((lockedUntil - now()) / 1000));
    },

    /** Counts an attempt, before it is compared: attempts at the same moment are all counted. */
    failed(): void {
      if (++failures >= FREE_FAILURES) wait = nextWait();
      beginWait();
    },

    /** Begins the wait anew when the attempt has been answered: comparing a password takes a part of it. */
    answered: beginWait,

    succeeded(): void {
      failures = 0;
      nextWait = backOff(FIRST_WAIT_MS, LONGEST_WAIT_MS);
      wait = 0;
      lockedUntil = 0;
    },
  };
}

/** Milliseconds of a window. */
const MINUTE_MS = 60_000;

/**
 * A limit of so many a minute for each key, in windows that all share. Keys are those of people who have signed in, so that
 * there are as many as accounts.
 */
export function createMinuteLimit(most: number, now: () => number = Date.now) {
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
    /** Seconds until there may be another one, rounded up; 0: now. */
    secondsLeft: (key: string) => ((current().get(key) ?? 0) < most ? 0 : Math.ceil((endsAt - now()) / 1000)),
    count: (key: string) => void current().set(key, (counts.get(key) ?? 0) + 1),
  };
}

type Lockout = ReturnType<typeof createLockout>;

/** Without a guess for this long it begins anew; whoever goes on guessing has one a minute, which is more. */
const FORGOTTEN_MS = 3_600_000;

/**
 * A lockout for each name, whether there is such an account or not: the answer does not tell. Names share 65,536 slots,
 * so that none ever has to give way to another. Which ones do only this process knows.
 */
export function createLockouts(now: () => number = Date.now) {
  const secret = randomBytes(32);
  const slots = new Map<number, { lockout: Lockout; triedAt: number }>();

  function find(slot: number): Lockout | undefined {
    const found = slots.get(slot);
    if (found && now() - found.triedAt < FORGOTTEN_MS) return found.lockout;
    slots.delete(slot);
    return undefined;
  }

  return {
    /** Of whoever is in the settings: no guess at another name has to do with it. */
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

    /** Slots that are remembered. */
    size: () => slots.size,
  };
}

export type Lockouts = ReturnType<typeof createLockouts>;

/** Between two times at which failed sign-ins are written down, in ms. */
const TELL_MS = 60_000;

/** Names that are told apart within that time, about as many as can be tried; others are counted together. */
const MOST_NAMES = 1000;

interface Failed {
  count: number;
  address: string | undefined;
}

/** Names that are no account's: neither can be one. */
const OPERATOR = ' operator';

const OTHERS = ' others';

/** An address of one company alone. No text that is stored has the character between them. */
const within = (email: string, company: string) => `${email}\0${company}`;

const addressOf = (name: string) => name.split('\0')[0]!;

/**
 * Counts wrong passwords by name, and writes them into the audit once a minute: however fast somebody guesses, it is a
 * bounded number of entries. A name that no account has is not written, since it may be a password.
 */
export function createFailedSignIns(
  pool: Pool,
  log: Log,
): Service & { note(name: string | undefined, client: Client, company?: string): void } {
  let byName = new Map<string, Failed>();

  function add(name: string, { count, address }: Failed): void {
    const known = byName.has(name) || byName.size < MOST_NAMES || name === OPERATOR;
    const under = known ? name : OTHERS;
    byName.set(under, { count: count + (byName.get(under)?.count ?? 0), address });
  }

  async function tell(): Promise<void> {
    const names = byName;
    byName = new Map();
    if (names.size === 0) return;
    try {
      const accounts = await accountsByEmail(pool, [...new Set([...names.keys()].map(addressOf))]);
      // All of them, or none: what was not written is counted again with the next minute.
      await inTransaction(pool, (tx) => write(tx, names, accounts));
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
      for (const name of [email, within(email, companyId)]) {
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

  const telling = poll(TELL_MS, tell);
  return {
    name: 'failed sign-ins',
    /**
     * @param name of an account, in lower case; undefined: the operator's
     * @param company the only one whose account was asked for; absent: a password is tried with those of all
     */
    note(name, { address }, company) {
      // One that no column can hold must not hide the others.
      const stored = name === undefined ? OPERATOR : storable(name).trim();
      add(company === undefined ? stored : within(stored, company), { count: 1, address });
    },
    async stop() {
      await telling.stop();
      await tell();
    },
  };
}

export type FailedSignIns = ReturnType<typeof createFailedSignIns>;
