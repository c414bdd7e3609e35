import type { Request, Response } from 'express';

const NAME = 'penstock_board';

/** Script cannot read it, and no other site's page can make the browser send it. */
const attributes = { httpOnly: true, sameSite: 'strict', path: '/' } as const;

/** The session id that the browser sent, if it sent one. */
export function readSessionCookie(request: Request): string | undefined {
  for (const pair of request.headers.cookie?.split(';') ?? []) {
    const [name, value] = pair.trim().split('=', 2);
    if (name === NAME) return value;
  }
  return undefined;
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
