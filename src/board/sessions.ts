import { randomBytes } from 'node:crypto';
import { parseCookie } from 'cookie';
import type { Request, Response } from 'express';
import { newId } from '../platform/ids.ts';

/** Lifetime of a session, used or not: one working day. */
export const LIFETIME_MS = 12 * 3_600_000;

/** Maximum number of BOARD_USER sessions. A new session replaces the oldest. */
const MAX_OPERATOR_SESSIONS = 100;

/** The origin of a request. */
export interface Client {
  /** IP address of the connection. With a reverse proxy, this is the proxy's address. */
  address: string | undefined;
  /** Short name of the browser. */
  agent: string;
}

/** Creates a session secret for the cookie: 256 random bits. */
export const newSecret = () => randomBytes(32).toString('base64url');

/** Whether the value has the format of a session secret. */
export const isSecret = (given: string | undefined): given is string => /^[\w-]{43}$/.test(given ?? '');

const browsers: [name: string, pattern: RegExp][] = [
  ['Edge', /\bEdg\/(\d+)/],
  ['Opera', /\bOPR\/(\d+)/],
  ['Firefox', /\bFirefox\/(\d+)/],
  ['Chrome', /\bChrome\/(\d+)/],
  ['Safari', /\bVersion\/(\d+).*\bSafari\//],
];

const systems: [name: string, pattern: RegExp][] = [
  ['Android', /\bAndroid\b/],
  ['iOS', /\b(?:iPhone|iPad)\b/],
  ['Windows', /\bWindows\b/],
  ['macOS', /\bMac OS X\b/],
  ['Linux', /\bLinux\b/],
];

/** Maximum number of characters of a User-Agent header that are parsed. */
const MAX_AGENT_LENGTH = 300;

/** Returns a short description of a User-Agent header, for example `Firefox 128 on Linux`. */
export function browserOf(userAgent: string | undefined): string {
  const given = (userAgent ?? '').slice(0, MAX_AGENT_LENGTH);
  const system = systems.find(([, pattern]) => pattern.test(given))?.[0];
  for (const [name, pattern] of browsers) {
    const [, version] = pattern.exec(given) ?? [];
    if (version) return `${name} ${version.slice(0, 4)}${system ? ` on ${system}` : ''}`;
  }
  return system ? `a program on ${system}` : 'a program';
}

export function clientOf({ socket, headers }: Request): Client {
  return { address: socket.remoteAddress, agent: browserOf(headers['user-agent']) };
}

/** A session of BOARD_USER. */
export interface OperatorSession extends Client {
  id: string;
  /** Epoch milliseconds, like the two times below. */
  beganAt: number;
  endsAt: number;
  seenAt: number;
}

/**
 * Keeps sessions of BOARD_USER in memory, because they must work while Postgres does not answer. A restart of the
 * console ends them.
 */
export function createOperatorSessions(now: () => number = Date.now) {
  /** Sessions by secret, in the order in which they were opened. */
  const sessions = new Map<string, OperatorSession>();

  function open(client: Client): string {
    const secret = newSecret();
    if (sessions.size >= MAX_OPERATOR_SESSIONS) sessions.delete(sessions.keys().next().value!);
    const beganAt = now();
    sessions.set(secret, { ...client, id: newId(), beganAt, endsAt: beganAt + LIFETIME_MS, seenAt: beganAt });
    return secret;
  }

  /** Returns the active session of a cookie and updates when it was last seen. */
  function find(secret: string | undefined, client: Client): OperatorSession | undefined {
    const session = secret === undefined ? undefined : sessions.get(secret);
    if (!session) return undefined;
    if (now() >= session.endsAt) {
      sessions.delete(secret!);
      return undefined;
    }
    return Object.assign(session, client, { seenAt: now() });
  }

  return {
    open,
    find,

    /**
     * Ends the session of a cookie.
     * @returns its id, or undefined if there was none
     */
    leave(secret: string | undefined): string | undefined {
      const session = secret === undefined ? undefined : sessions.get(secret);
      if (session) sessions.delete(secret!);
      return session?.id;
    },

    /**
     * Ends a session by its id, which is not a secret.
     * @returns whether it existed
     */
    close(id: string): boolean {
      for (const [secret, session] of sessions) if (session.id === id) return sessions.delete(secret);
      return false;
    },

    /** Returns the active sessions, newest first. */
    list: (): OperatorSession[] => [...sessions.values()].filter(({ endsAt }) => now() < endsAt).reverse(),
  };
}

export type OperatorSessions = ReturnType<typeof createOperatorSessions>;

const NAME = 'penstock_board';

/**
 * Attributes of the session cookie. Scripts cannot read it. Links from other sites send it, so that addresses can be
 * shared. Forms and scripts of other sites do not, and the origin check also rejects changes from there.
 */
const attributes = { httpOnly: true, sameSite: 'lax', path: '/' } as const;

export function readCookie({ headers }: Request, name: string): string | undefined {
  return parseCookie(headers.cookie ?? '')[name];
}

/** Returns the session secret that the browser sent, if any. */
export const readSessionCookie = (request: Request) => readCookie(request, NAME);

/** Whether the form came from an https page. TLS is then terminated by a reverse proxy. */
export const isOverTls = ({ headers }: Request) => headers.origin?.startsWith('https:') === true;

/**
 * Sets the session cookie without an expiry, so that it ends when the browser is closed.
 *
 * @param secure whether the browser must send it over https only
 */
export function writeSessionCookie(response: Response, secret: string, secure: boolean): void {
  response.cookie(NAME, secret, { ...attributes, secure });
}

export function clearSessionCookie(response: Response): void {
  response.clearCookie(NAME, attributes);
}
