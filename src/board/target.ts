import type { Request, Response } from 'express';
import { readCookie } from './sessions.ts';

/** The page that was asked for without a session, until somebody signs in. Not in the address, where a link could set it. */
const COOKIE = 'penstock_board_target';

const LIFETIME_MS = 600_000;

const cookieFor = (secure: boolean) => ({
  ...({ httpOnly: true, sameSite: 'lax', path: '/sign-in' } as const),
  secure,
});

/** A path of this console. Browsers read `//` and a backslash as the beginning of another host. */
const OWN_PATH = /^\/(?![/\\])[!-[\]-~]{0,1000}$/;

/** Pages that nobody wants to come back to. */
const NO_TARGET = /^\/(?:$|sign-|invitation|events)/;

const isTarget = (path: string) => OWN_PATH.test(path) && !NO_TARGET.test(path);

/**
 * Remembers the page that was asked for.
 * @param secure whether the browser never sends it over http
 */
export function keepTarget(request: Request, response: Response, secure: boolean): void {
  const { originalUrl } = request;
  if (isTarget(originalUrl))
    response.cookie(COOKIE, originalUrl, { ...cookieFor(secure), maxAge: LIFETIME_MS });
}

/** Returns the page that was asked for, or the first page, and forgets it. */
export function takeTarget(request: Request, response: Response, secure: boolean): string {
  const kept = readCookie(request, COOKIE);
  if (kept === undefined) return '/';
  response.clearCookie(COOKIE, cookieFor(secure));
  return isTarget(kept) ? kept : '/';
}
