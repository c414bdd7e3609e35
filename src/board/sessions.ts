import { randomBytes } from 'node:crypto';

/** A working day: after it one signs in again, used or not. */
const LIFETIME_MS = 12 * 3_600_000;

/** Most sessions at a time; the oldest gives way. */
const MOST = 100;

/** A dashboard account that has signed in. */
export interface Person {
  accountId: string;
  /** The account's `session_epoch` at that time: with another one, the session is over. */
  epoch: number;
}

/** Whoever knows BOARD_USER and its password. */
export const OPERATOR = 'operator';

/** Sessions of signed-in people, in memory: a restart of the dashboard signs everybody out. */
export function createSessions(now: () => number = Date.now) {
  /** By session id, in the order in which they were opened. */
  const sessions = new Map<string, { end: number; whose: Person | typeof OPERATOR }>();

  /** Who opened the session, while it lasts. */
  function whoseIs(id: string | undefined): Person | typeof OPERATOR | undefined {
    const session = id === undefined ? undefined : sessions.get(id);
    if (session === undefined) return undefined;
    if (now() < session.end) return session.whose;
    sessions.delete(id!);
    return undefined;
  }

  return {
    /** Opens a session and returns its id, 256 random bits. */
    open(whose: Person | typeof OPERATOR = OPERATOR): string {
      const id = randomBytes(32).toString('base64url');
      const [oldest] = sessions.keys();
      if (sessions.size >= MOST && oldest) sessions.delete(oldest);
      sessions.set(id, { end: now() + LIFETIME_MS, whose });
      return id;
    },

    whoseIs,

    isOpen: (id: string | undefined): boolean => whoseIs(id) !== undefined,

    close(id: string | undefined): void {
      if (id !== undefined) sessions.delete(id);
    },
  };
}

export type Sessions = ReturnType<typeof createSessions>;
