import { randomBytes } from 'node:crypto';

/** A working day: after it one signs in again, used or not. */
const LIFETIME_MS = 12 * 3_600_000;

/** Most sessions at a time; the oldest gives way. */
const MOST = 100;

/** Sessions of signed-in people, in memory: a restart of the dashboard signs everybody out. */
export function createSessions(now: () => number = Date.now) {
  /** Session id to the time at which it ends; in the order in which they were opened. */
  const sessions = new Map<string, number>();

  return {
    /** Opens a session and returns its id, 256 random bits. */
    open(): string {
      const id = randomBytes(32).toString('base64url');
      const [oldest] = sessions.keys();
      if (sessions.size >= MOST && oldest) sessions.delete(oldest);
      sessions.set(id, now() + LIFETIME_MS);
      return id;
    },

    isOpen(id: string | undefined): boolean {
      if (id === undefined) return false;
      const end = sessions.get(id);
      if (end === undefined) return false;
      if (now() < end) return true;
      sessions.delete(id);
      return false;
    },

    close(id: string | undefined): void {
      if (id !== undefined) sessions.delete(id);
    },
  };
}

export type Sessions = ReturnType<typeof createSessions>;
