import { createLockout, type Lockout } from './lockout.ts';

/** Names that are remembered; with more, whoever was tried longest ago is forgotten. */
const MOST = 10_000;

/** A lockout for each name, whether there is such an account or not: the answer does not tell. */
export function createLockouts(now: () => number = Date.now) {
  const lockouts = new Map<string, Lockout>();

  return {
    of(name: string): Lockout {
      const lockout = lockouts.get(name) ?? createLockout(now);
      // The one that was tried last stands last.
      lockouts.delete(name);
      lockouts.set(name, lockout);
      const [oldest] = lockouts.keys();
      if (lockouts.size > MOST && oldest !== undefined) lockouts.delete(oldest);
      return lockout;
    },
  };
}

export type Lockouts = ReturnType<typeof createLockouts>;
