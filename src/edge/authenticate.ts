import { isIPv6 } from 'node:net';
import { ApiError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Pool } from '../store/database.ts';
import { touchApiKeys } from '../store/touch-api-keys.ts';
import { type ApiKey, createKnownKeys } from './known-keys.ts';

const TOUCH_INTERVAL = 60_000;

/**
 * Who a key is, remembered for `cacheMs`: within that time a revocation, or a blocked external id, takes effect
 * on every edge. When Postgres does not answer, a key that was known stays known for a minute, so that objects
 * can still be accepted into the queue.
 */
export function createAuthenticator(pool: Pool, cacheMs: number, log: Log) {
  const keys = createKnownKeys(pool, cacheMs, log);
  let seen = new Map<string, Date>();

  /** @throws {ApiError} 401 without a valid key, 403 from an address outside the key's allowlist */
  async function authenticate(header: string | undefined, address: string, now: number): Promise<ApiKey> {
    const secret = bearer(header);
    const key = secret && (await keys.find(secret, now));
    if (!key) throw new ApiError('invalidKey');
    seen.set(key.id, new Date(now));
    if (key.allowlist && !key.allowlist.check(plain(address), isIPv6(plain(address)) ? 'ipv6' : 'ipv4')) {
      throw new ApiError('accessDenied');
    }
    return key;
  }

  /** As `authenticate`, without what is remembered: for a caller who names something that was made just now. */
  async function renew(header: string | undefined, address: string, now: number): Promise<ApiKey> {
    const secret = bearer(header);
    if (secret) await keys.renew(secret, now);
    return authenticate(header, address, now);
  }

  const timer = setInterval(flushSeen, TOUCH_INTERVAL);
  timer.unref();

  async function flushSeen(): Promise<void> {
    if (seen.size === 0) return;
    const flushing = seen;
    seen = new Map();
    await touchApiKeys(pool, flushing).catch((error) =>
      log.warn({ err: error }, 'last use of keys not noted'),
    );
  }

  return {
    authenticate,
    renew,
    async stop() {
      clearInterval(timer);
      await flushSeen();
    },
  };
}

export type Authenticator = ReturnType<typeof createAuthenticator>;

/** The secret of `Bearer <secret>`; the scheme's case does not matter, the secret's does. */
export function bearer(header: string | undefined): string | undefined {
  if (!header || header.length > 512) return undefined;
  const space = header.indexOf(' ');
  return space > 0 && header.slice(0, space).toLowerCase() === 'bearer'
    ? header.slice(space + 1).trim()
    : undefined;
}

/** An IPv4 address that came over an IPv6 socket. */
export function plain(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}
