import { randomBytes } from 'node:crypto';
import { parseCookie } from 'cookie';
import type { Request, Response } from 'express';
import { newId } from '../platform/ids.ts';

/** A working day: after it one signs in again, used or not. */
export const LIFETIME_MS = 12 * 3_600_000;

/** Most sessions of the operator; the oldest gives way. */
const MOST_OF_OPERATOR = 100;

/** Where a request comes from. */
export interface Client {
  /** Of the connection: behind a proxy, the proxy's. */
  address: string | undefined;
  /** The browser in short. */
  agent: string;
}

/** 256 random bits: what a session's cookie holds. */
export const newSecret = () => randomBytes(32).toString('base64url');

/** Whether a cookie's value may be one of ours. */
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

/** Characters of a client's own name that are looked at. */
const MOST_OF_AGENT = 300;

/** What a browser calls itself, in a few words of ours. */
export function browserOf(userAgent: string | undefined): string {
  const given = (userAgent ?? '').slice(0, MOST_OF_AGENT);
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

/** A session of the operator's. */
export interface OperatorSession extends Client {
  id: string;
  /** Epoch milliseconds. */
  beganAt: number;
  endsAt: number;
  seenAt: number;
}

/**
 * Sessions of whoever knows BOARD_USER, in memory, since they have to open while Postgres does not answer: a restart of
 * the console ends them.
 */
export function createOperatorSessions(now: () => number = Date.now) {
  /** By secret, in the order in which they were opened. */
  const sessions = new Map<string, OperatorSession>();

  function open(client: Client): string {
    const secret = newSecret();
    if (sessions.size >= MOST_OF_OPERATOR) sessions.delete(sessions.keys().next().value!);
    const beganAt = now();
    sessions.set(secret, { ...client, id: newId(), beganAt, endsAt: beganAt + LIFETIME_MS, seenAt: beganAt });
    return secret;
  }

  /** The session of a cookie, while it lasts; notes that it was seen. */
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

    /** That of a cookie. @returns its id, where there was one */
    leave(secret: string | undefined): string | undefined {
      const session = secret === undefined ? undefined : sessions.get(secret);
      if (session) sessions.delete(secret!);
      return session?.id;
    },

    /** By its id, which opens nothing. @returns whether there was one */
    close(id: string): boolean {
      for (const [secret, session] of sessions) if (session.id === id) return sessions.delete(secret);
      return false;
    },

    /** Those that last, the newest first. */
    list: (): OperatorSession[] => [...sessions.values()].filter(({ endsAt }) => now() < endsAt).reverse(),
  };
}

export type OperatorSessions = ReturnType<typeof createOperatorSessions>;

const NAME = 'penstock_board';

/**
 * Script cannot read it. A link on another site may bring it along, so that addresses can be shared. A form or a script
 * there cannot, and what changes something is refused besides unless it comes from here.
 */
const attributes = { httpOnly: true, sameSite: 'lax', path: '/' } as const;

export function readCookie({ headers }: Request, name: string): string | undefined {
  return parseCookie(headers.cookie ?? '')[name];
}

/** The session's secret that the browser sent, if it sent one. */
export const readSessionCookie = (request: Request) => readCookie(request, NAME);

/** Whether the form came from a page of https, which a proxy in front of us ended. */
export const cameByTls = ({ headers }: Request) => headers.origin?.startsWith('https:') === true;

/**
 * Without an end of its own: it goes when the browser is closed.
 *
 * @param secure whether the browser never sends it over http
 */
export function writeSessionCookie(response: Response, secret: string, secure: boolean): void {
  response.cookie(NAME, secret, { ...attributes, secure });
}

export function clearSessionCookie(response: Response): void {
  response.clearCookie(NAME, attributes);
}
