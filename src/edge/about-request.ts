import type { IncomingMessage } from 'node:http';
import type { Config } from '../config.ts';
import type { AboutRequest } from '../operations/operation.ts';

/** A host and a port; anything else in the header is no place to send a client to. */
const HOST = /^[\w.:[\]-]{1,255}$/;

/**
 * Where the request was sent, and what it makes its effect depend on. The world's address is PUBLIC_URL; without
 * one it is the host that was asked, and the scheme is the word of a trusted proxy, since TLS ends there.
 */
export function aboutRequest(
  { headers }: IncomingMessage,
  { PUBLIC_URL: publicUrl, TRUST_PROXY_HOPS: hops }: Pick<Config, 'PUBLIC_URL' | 'TRUST_PROXY_HOPS'>,
): AboutRequest {
  const forwarded = hops > 0 ? String(headers['x-forwarded-proto'] ?? '') : '';
  const scheme = forwarded.split(',').at(-hops)?.trim() === 'https' ? 'https' : 'http';
  const { host = '', 'if-match': ifMatch, 'if-none-match': ifNoneMatch } = headers;
  return {
    baseUrl: publicUrl ? publicUrl.replace(/\/+$/, '') : HOST.test(host) ? `${scheme}://${host}` : '',
    ...(ifMatch !== undefined && { ifMatch }),
    ...(ifNoneMatch !== undefined && { ifNoneMatch }),
  };
}
