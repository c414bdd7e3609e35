import type { IncomingMessage } from 'node:http';
import type { AboutRequest } from '../operations/operation.ts';

/** A host and a port; anything else in the header is no place to send a client to. */
const HOST = /^[\w.:[\]-]{1,255}$/;

/**
 * Where the request was sent, and what it makes its effect depend on. The scheme is the word of a trusted
 * proxy, since TLS ends there.
 *
 * @param hops trusted reverse proxies in front of us
 */
export function aboutRequest({ headers }: IncomingMessage, hops: number): AboutRequest {
  const forwarded = hops > 0 ? String(headers['x-forwarded-proto'] ?? '') : '';
  const scheme = forwarded.split(',').at(-hops)?.trim() === 'https' ? 'https' : 'http';
  const { host = '', 'if-match': ifMatch, 'if-none-match': ifNoneMatch } = headers;
  return {
    baseUrl: HOST.test(host) ? `${scheme}://${host}` : '',
    ...(ifMatch !== undefined && { ifMatch }),
    ...(ifNoneMatch !== undefined && { ifNoneMatch }),
  };
}
