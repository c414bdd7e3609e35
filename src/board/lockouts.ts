import { createHmac, randomBytes } from 'node:crypto';

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
  let lockedUntil = 0;

  function beginWait(): void {
    if (failures < FREE_FAILURES) return;
    lockedUntil = now() + Math.min(FIRST_WAIT_MS * 2 ** (failures - FREE_FAILURES), LONGEST_WAIT_MS);
  }

  return {
    /** Seconds to wait until the next attempt, rounded up; 0: none. */
    secondsLeft(): number {
      return Math.max(0, Math.ceil((lockedUntil - now()) / 1000));
    },

    /** Counts an attempt, before it is compared: attempts at the same moment are all counted. */
    failed(): void {
      failures++;
      beginWait();
    },

    /** Begins the wait anew when the attempt has been answered: comparing a password takes a part of it. */
    answered: beginWait,

    succeeded(): void {
      failures = 0;
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
