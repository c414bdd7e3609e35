/** A person may mistype this often before the first wait. */
const FREE_FAILURES = 5;

/** The first wait; each further failure doubles it. */
const FIRST_WAIT_MS = 1000;

/** Short enough that the owner gets in again within a minute, long enough that guessing is hopeless. */
const LONGEST_WAIT_MS = 60_000;

/**
 * Slows guessing down: after some wrong passwords in a row nobody can sign in to an account for a while, with the
 * right one neither, whatever address a guess comes from. Whoever is signed in stays so.
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

export type Lockout = ReturnType<typeof createLockout>;
