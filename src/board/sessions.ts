import { randomBytes } from 'node:crypto';
import { parseCookie } from 'cookie';
import type { Request, Response } from 'express';

/** A working day: after it one signs in again, used or not. */
const LIFETIME_MS = 12 * 3_600_000;

/** Most sessions of one account, and of the operator; the oldest of the same one gives way. */
const MOST_OF_ONE = 100;

/** Most sessions of all accounts; the oldest gives way. The operator's are not among them. */
const MOST = 10_000;

/** A dashboard account that has signed in. */
export interface Person {
  accountId: string;
  /** The account's `session_epoch` at that time: with another one, the session is over. */
  epoch: number;
}

/** Whoever knows BOARD_USER and its password. */
export const OPERATOR = 'operator';

interface Session {
  /** Epoch milliseconds. */
  end: number;
  whose: Person | typeof OPERATOR;
}

/** Sessions of signed-in people, in memory: a restart of the dashboard signs everybody out. */
export function createSessions(now: () => number = Date.now) {
  /** By session id, in the order in which they were opened. */
  const operators = new Map<string, Session>();
  const people = new Map<string, Session>();
  /** Ids of the sessions of an account, in the same order. */
  const byAccount = new Map<string, Set<string>>();

  /** Who opened the session, while it lasts. */
  function whoseIs(id: string | undefined): Person | typeof OPERATOR | undefined {
    if (id === undefined) return undefined;
    const session = operators.get(id) ?? people.get(id);
    if (session && now() < session.end) return session.whose;
    close(id);
    return undefined;
  }

  function open(whose: Person | typeof OPERATOR = OPERATOR): string {
    const id = randomBytes(32).toString('base64url');
    const session = { end: now() + LIFETIME_MS, whose };
    if (whose === OPERATOR) {
      if (operators.size >= MOST_OF_ONE) close(oldest(operators));
      operators.set(id, session);
      return id;
    }
    const own = byAccount.get(whose.accountId);
    if (own && own.size >= MOST_OF_ONE) close(oldest(own));
    if (people.size >= MOST) close(oldest(people));
    people.set(id, session);
    // What was closed may have been the last of the account.
    byAccount.set(whose.accountId, (byAccount.get(whose.accountId) ?? new Set()).add(id));
    return id;
  }

  function close(id: string | undefined): void {
    if (id === undefined || operators.delete(id)) return;
    const whose = people.get(id)?.whose;
    if (whose === undefined || whose === OPERATOR) return;
    people.delete(id);
    const own = byAccount.get(whose.accountId);
    own?.delete(id);
    if (own?.size === 0) byAccount.delete(whose.accountId);
  }

  return {
    /** Opens a session and returns its id, 256 random bits. */
    open,

    whoseIs,

    isOpen: (id: string | undefined): boolean => whoseIs(id) !== undefined,

    close,
  };
}

function oldest(ids: { keys(): Iterator<string> }): string | undefined {
  return ids.keys().next().value;
}

export type Sessions = ReturnType<typeof createSessions>;

const NAME = 'penstock_board';

/**
 * Script cannot read it. A link on another site may bring it along, so that addresses can be shared; a form or a script
 * there cannot, and what changes something is refused besides unless it comes from here.
 */
const attributes = { httpOnly: true, sameSite: 'lax', path: '/' } as const;

/** The session id that the browser sent, if it sent one. */
export function readSessionCookie({ headers }: Request): string | undefined {
  return parseCookie(headers.cookie ?? '')[NAME];
}

/**
 * Without an end of its own: it goes when the browser is closed. Where the form came from a page of https, which a
 * proxy in front of us ended, the browser never sends it over http.
 */
export function writeSessionCookie(request: Request, response: Response, id: string): void {
  const secure = request.headers.origin?.startsWith('https:') === true;
  response.cookie(NAME, id, { ...attributes, secure });
}

export function clearSessionCookie(response: Response): void {
  response.clearCookie(NAME, attributes);
}
