import { BlockList, isIPv6 } from 'node:net';
import { hashApiKey } from '../admin/api-keys.ts';
import { ApiError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Pool } from '../store/database.ts';
import { type ApiKeyRow, findApiKey } from '../store/find-api-key.ts';
import { touchApiKeys } from '../store/touch-api-keys.ts';

export interface ApiKey extends Omit<ApiKeyRow, 'permissions' | 'ipAllowlist' | 'groups' | 'blocked'> {
  permissions: ReadonlySet<string>;
  groups: ReadonlySet<string>;
  /** External ids. */
  blocked: ReadonlySet<string>;
  /** Absent: any address. */
  allowlist: BlockList | undefined;
}

interface Remembered {
  key: ApiKey | undefined;
  /** Epoch milliseconds of the look-up. */
  at: number;
  refresh: Promise<ApiKey | undefined> | undefined;
}

/** Bounds the memory that unknown keys can take. */
const MAX_REMEMBERED = 10_000;

/** How long a known key still opens the door while Postgres cannot be asked, in ms. */
const STALE_WHILE_DOWN = 60_000;

const TOUCH_INTERVAL = 60_000;

/**
 * Who a key is, by its SHA-256, remembered for `cacheMs`: within that time a revocation, or a blocked
 * external id, takes effect on every edge. When Postgres does not answer, a key that was known stays known for
 * a minute, so that objects can still be accepted into the queue.
 */
export function createAuthenticator(pool: Pool, cacheMs: number, log: Log) {
  const remembered = new Map<string, Remembered>();
  let seen = new Map<string, Date>();

  /** @throws {ApiError} 401 without a valid key, 403 from an address outside the key's allowlist */
  async function authenticate(header: string | undefined, address: string, now: number): Promise<ApiKey> {
    const secret = bearer(header);
    const key = secret && (await lookUp(secret, now));
    if (!key) throw new ApiError('invalidKey');
    if (key.allowlist && !key.allowlist.check(plain(address), isIPv6(plain(address)) ? 'ipv6' : 'ipv4')) {
      throw new ApiError('accessDenied');
    }
    return key;
  }

  /** As `authenticate`, without what is remembered: for a caller who names something that was made just now. */
  async function renew(header: string | undefined, address: string, now: number): Promise<ApiKey> {
    const entry = remembered.get(bearer(header) ?? '');
    if (entry) entry.at = 0;
    return authenticate(header, address, now);
  }

  async function lookUp(secret: string, now: number): Promise<ApiKey | undefined> {
    let entry = remembered.get(secret);
    if (!entry) {
      if (remembered.size >= MAX_REMEMBERED) remembered.clear();
      entry = { key: undefined, at: 0, refresh: undefined };
      remembered.set(secret, entry);
    }
    if (now - entry.at > cacheMs) {
      entry.refresh ??= refresh(secret, entry, now).finally(() => {
        entry.refresh = undefined;
      });
      await entry.refresh;
    }
    if (entry.key) seen.set(entry.key.id, new Date(now));
    return entry.key;
  }

  async function refresh(secret: string, entry: Remembered, now: number): Promise<ApiKey | undefined> {
    try {
      const row = await findApiKey(pool, hashApiKey(secret));
      entry.key = row && toApiKey(row);
      entry.at = now;
    } catch (error) {
      if (!entry.key || now - entry.at > STALE_WHILE_DOWN) throw error;
      log.warn({ err: error }, 'Postgres did not answer; the keys known already stay valid for a minute');
    }
    return entry.key;
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
function bearer(header: string | undefined): string | undefined {
  if (!header || header.length > 512) return undefined;
  const space = header.indexOf(' ');
  return space > 0 && header.slice(0, space).toLowerCase() === 'bearer'
    ? header.slice(space + 1).trim()
    : undefined;
}

function toApiKey(row: ApiKeyRow): ApiKey {
  return {
    ...row,
    permissions: new Set(row.permissions),
    groups: new Set(row.groups),
    blocked: new Set(row.blocked),
    allowlist: toBlockList(row.ipAllowlist),
  };
}

/** Addresses and CIDR ranges, checked when the key was made. */
function toBlockList(entries: string[]): BlockList | undefined {
  if (entries.length === 0) return undefined;
  const list = new BlockList();
  for (const entry of entries) {
    const [address, prefix] = entry.split('/') as [string, string?];
    const family = isIPv6(address) ? 'ipv6' : 'ipv4';
    if (prefix) list.addSubnet(address, Number(prefix), family);
    else list.addAddress(address, family);
  }
  return list;
}

/** An IPv4 address that came over an IPv6 socket. */
function plain(address: string): string {
  return address.startsWith('::ffff:') ? address.slice(7) : address;
}
