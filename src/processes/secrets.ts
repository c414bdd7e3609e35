import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { readIntegrationKey } from '../embedded/address.ts';
import { keysOf } from '../integrations/definition.ts';
import type { Config } from '../platform/config.ts';

const SCHEME = /^bearer +/i;

/**
 * Who may read /metrics: whoever shows the token as `Authorization: Bearer …`, as Prometheus does; with an empty token
 * everyone who reaches the port.
 *
 * @returns whether an Authorization header lets in; it takes as long for a token that is nearly right
 */
export function createMetricsGuard(token: string): (header: string | undefined) => boolean {
  if (token === '') return () => true;
  const wanted = digest(token);
  return (header) =>
    header !== undefined &&
    SCHEME.test(header) &&
    timingSafeEqual(digest(header.replace(SCHEME, '').trim()), wanted);
}

const OWN_ADDRESS = /^(?:::ffff:)?127\.|^::1$/;

/** What a proxy adds when it asks for somebody else. */
const FORWARDED = ['forwarded', 'x-forwarded-for', 'x-real-ip', 'via'];

/**
 * Who may read where the processes of the fleet are, which is a map of the network: whoever shows the token. With an empty
 * one nobody but this machine itself: from a loopback address, and not through a proxy that stands there. A proxy may add no
 * header, so that behind one of the settings nobody is told without a token.
 */
export function createTargetsGuard(
  token: string,
  { TRUST_PROXY_HOPS, PUBLIC_URL }: Pick<Config, 'TRUST_PROXY_HOPS' | 'PUBLIC_URL'>,
): (request: Pick<IncomingMessage, 'headers' | 'socket'>) => boolean {
  const mayRead = createMetricsGuard(token);
  if (token !== '') return ({ headers }) => mayRead(headers.authorization);
  if (TRUST_PROXY_HOPS > 0 || PUBLIC_URL !== '') return () => false;
  return ({ headers, socket }) =>
    OWN_ADDRESS.test(socket.remoteAddress ?? '') && !FORWARDED.some((name) => name in headers);
}

function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}

/**
 * The keys of credentials: those of INTEGRATION_KEY, then, of an embedded installation, the one in DATA_DIR. The first
 * encrypts, any decrypts.
 */
export function integrationKeys({
  INTEGRATION_KEY,
  DATABASE_URL,
  DATA_DIR,
}: Pick<Config, 'INTEGRATION_KEY' | 'DATABASE_URL' | 'DATA_DIR'>): Buffer[] {
  const kept = DATABASE_URL === '' ? (readIntegrationKey(DATA_DIR) ?? '') : '';
  return keysOf(`${INTEGRATION_KEY},${kept}`);
}
