import type { Request, Response } from 'express';
import { readCookie } from './sessions.ts';

/** Cookie with the page that was requested without a session. Not part of the URL, where a link could set it. */
const COOKIE = 'penstock_board_target';

const LIFETIME_MS = 600_000;

const cookieFor = (secure: boolean) => ({
  ...({ httpOnly: true, sameSite: 'lax', path: '/sign-in' } as const),
  secure,
});

/** Matches a path of this console. Browsers treat `//` and a backslash as the start of another host. */
const OWN_PATH = /^\/(?![/\\])[!-[\]-~]{0,1000}$/;

/** Matches pages to which a sign-in does not return. */
const NO_TARGET = /^\/(?:$|home$|sign-|invitation|events)/;

const HOME = '/home';

const isTarget = (path: string) => OWN_PATH.test(path) && !NO_TARGET.test(path);

/**
 * Returns the path of the page whose form sent the request, from its Referer; undefined if the request is not from a form
 * of this console.
 */
export function formPathOf(request: Request): string | undefined {
  const { referer = '', host } = request.headers;
  if (!URL.canParse(referer)) return undefined;
  const { host: from, pathname, search } = new URL(referer);
  const path = pathname + search;
  // A GET form is on the page that it requests.
  const isForm = request.method === 'POST' || (pathname === request.path && path !== request.originalUrl);
  return from === host && isForm && OWN_PATH.test(path) ? path : undefined;
}

/**
 * Stores the requested page for the time after sign-in.
 * @param secure whether the browser must send the cookie over https only
 */
export function keepTarget(request: Request, response: Response, secure: boolean): void {
  const { originalUrl } = request;
  if (isTarget(originalUrl))
    response.cookie(COOKIE, originalUrl, { ...cookieFor(secure), maxAge: LIFETIME_MS });
}

/** Returns the stored page, or `/home`, which redirects to the first page of the role, and deletes the cookie. */
export function takeTarget(request: Request, response: Response, secure: boolean): string {
  const kept = readCookie(request, COOKIE);
  if (kept === undefined) return HOME;
  response.clearCookie(COOKIE, cookieFor(secure));
  return isTarget(kept) ? kept : HOME;
}
