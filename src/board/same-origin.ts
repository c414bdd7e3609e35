import type { IncomingMessage } from 'node:http';

/** Methods that change nothing. */
const SAFE = ['GET', 'HEAD', 'OPTIONS'];

/**
 * Whether a request that may change something was sent by a page of this very host and port: a cookie alone
 * does not prove it, as cookies are shared by all ports of a host. Browsers send at least one of the two
 * headers with every such request, so a request with neither is refused.
 */
export function isSameOrigin({ method = '', headers }: IncomingMessage): boolean {
  if (SAFE.includes(method)) return true;
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin') return false;
  if (headers.origin === undefined) return site === 'same-origin';
  // The scheme is left out: behind a proxy that ends TLS, the page's is https and ours http.
  return URL.canParse(headers.origin) && new URL(headers.origin).host === headers.host;
}
