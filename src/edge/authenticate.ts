import type { IncomingHttpHeaders } from 'node:http';
import { type BlockList, isIPv6 } from 'node:net';
import { ApiError } from '../errors.ts';
import type { Log } from '../platform/log.ts';
import { poll } from '../platform/poll.ts';
import { addKeyUsage, type CountedRequests } from '../store/api-keys.ts';
import { findScimToken, hashApiKey, touchApiKeys, touchScimToken } from '../store/credentials.ts';
import type { Pool } from '../store/database.ts';
import { type ApiKey, createKeyCache, toBlockList } from './key-cache.ts';

const KEY_TOUCH_INTERVAL = 60_000;

/**
 * Authenticates API keys, which are cached for `cacheMs`: a revocation or a blocked external id takes effect in all
 * web processes within that time. While Postgres does not answer, a cached key stays valid for a minute, so that
 * objects can still be accepted into the queue.
 */
export function createAuthenticator(pool: Pool, cacheMs: number, log: Log) {
  const keyCache = createKeyCache(pool, cacheMs, log);
  let seen = new Map<string, Date>();
  /** Request counts by key and bucket since the last write. */
  let counted = new Map<string, CountedRequests>();

  /** @throws {ApiError} 401 without a valid key, 403 from an address outside the key's allowlist */
  function authenticate(
    header: string | undefined,
    address: string | undefined,
    now: number,
  ): ApiKey | Promise<ApiKey> {
    const secret = bearer(header);
    if (secret === undefined) throw keyless(header);
    const lookup = keyCache.find(secret, now);
    if (lookup instanceof Promise) return lookup.then((key) => opened(key, address, now));
    return opened(lookup, address, now);
  }

  function opened(key: ApiKey | undefined, address: string | undefined, now: number): ApiKey {
    if (!key) throw new ApiError('invalidKey');
    seen.set(key.id, new Date(now));
    if (!allows(key.allowlist, address)) throw notAllowed(address);
    return key;
  }

  /** Authenticates with a new look-up of the key, for a request with an id that may have just been created. */
  async function renew(
    header: string | undefined,
    address: string | undefined,
    now: number,
  ): Promise<ApiKey> {
    const secret = bearer(header);
    if (secret) await keyCache.renew(secret, now);
    return authenticate(header, address, now);
  }

  /** Counts a request of a key, under the bucket that its rate limit used. */
  function count({ id, workspaceId }: ApiKey, bucket: string, isAllowed: boolean): void {
    const name = `${id}${bucket}`;
    let row = counted.get(name);
    if (!row) {
      row = { workspaceId, apiKeyId: id, bucket, requests: 0, refused: 0 };
      counted.set(name, row);
    }
    row.requests++;
    if (!isAllowed) row.refused++;
  }

  const writes = poll(KEY_TOUCH_INTERVAL, async () => {
    await writeSeen();
    await writeCounted();
  });

  async function writeCounted(): Promise<void> {
    const taken = counted;
    counted = new Map();
    await addKeyUsage(pool, [...taken.values()]).catch((error) => {
      log.warn({ err: error }, 'request counts of API keys were not saved; will retry');
      // Bounded by the number of keys and buckets, however long the store is unavailable.
      for (const [name, row] of taken) {
        const later = counted.get(name);
        if (!later) counted.set(name, row);
        else {
          later.requests += row.requests;
          later.refused += row.refused;
        }
      }
    });
  }

  async function writeSeen(): Promise<void> {
    if (seen.size === 0) return;
    const taken = seen;
    seen = new Map();
    await touchApiKeys(pool, taken).catch((error) =>
      log.warn({ err: error }, 'last use of API keys was not saved'),
    );
  }

  return {
    authenticate,
    renew,
    count,
    async stop() {
      await writes.stop();
      await writeSeen();
      await writeCounted();
    },
  };
}

export type Authenticator = ReturnType<typeof createAuthenticator>;

/** The secret of `Bearer <secret>`. The scheme is case-insensitive, the secret is not. */
function bearer(header: string | undefined): string | undefined {
  if (!header || header.length > 512) return undefined;
  const space = header.indexOf(' ');
  return space > 0 && header.slice(0, space).toLowerCase() === 'bearer'
    ? header.slice(space + 1).trim()
    : undefined;
}

/**
 * The error for a missing or malformed header. Unknown and revoked keys get the same message, which does not reveal
 * whether a key has existed.
 */
function keyless(header: string | undefined): ApiError {
  const fact =
    header === undefined
      ? 'The `Authorization` header is missing.'
      : 'The `Authorization` header is not `Bearer` and an API key.';
  return new ApiError('invalidKey', { fact });
}

function notAllowed(address: string | undefined): ApiError {
  const fact = address
    ? `The address ${plainAddress(address)} is not in the allowlist of the API key.`
    : 'The API key has an allowlist, and the proxies in front of the server did not give the address of the client.';
  return new ApiError('addressNotAllowed', { fact });
}

/** Converts an IPv4 address that arrived on an IPv6 socket. */
function plainAddress(address: string): string {
  return address.replace(/^::ffff:(?=\d+\.)/i, '');
}

/** Whether an address is in the allowlist, if there is one. An unknown address is in no allowlist. */
function allows(allowlist: BlockList | undefined, address: string | undefined): boolean {
  if (!allowlist) return true;
  if (address === undefined) return false;
  const plain = plainAddress(address);
  return allowlist.check(plain, isIPv6(plain) ? 'ipv6' : 'ipv4');
}

/** Minimum milliseconds between two writes of a token's last use. */
const TOKEN_TOUCH_INTERVAL = 60_000;

/** The company of a SCIM token. `workspaceId` is the company's id, under which its limits are counted. */
interface ScimKey extends ApiKey {
  companyId: string;
}

/** RFC 7644 §2: a refusal names the authentication scheme. */
const refused = (reason?: string) =>
  new ApiError('scimUnauthorized', {
    ...(reason !== undefined && { suffix: reason }),
    headers: { 'WWW-Authenticate': 'Bearer' },
  });

/** Why a valid token from an allowed address is refused. */
const OTHER_ORIGIN = "the token is valid, but 'X-Request-Origin' is not the origin that it was issued for";

const SCIM_PERMISSION: ReadonlySet<string> = new Set(['scim']);
const NONE: ReadonlySet<string> = new Set();

/**
 * Authenticates SCIM tokens. A token is looked up at every request, some thousand a day per company, so that a
 * revocation takes effect at once.
 */
export function createScimAuthenticator(pool: Pool, log: Log) {
  /**
   * Tokens whose last use is being written. In a burst, one request writes it, and the others do not wait for the
   * row.
   */
  const noting = new Set<string>();

  async function note(id: string, at: Date): Promise<void> {
    noting.add(id);
    await touchScimToken(pool, id, at)
      .catch((error) => log.warn({ err: error }, 'last use of a SCIM token was not saved'))
      .finally(() => noting.delete(id));
  }

  return {
    /**
     * @throws {ApiError} 401 without a valid token, with another `X-Request-Origin` than the token's, or from an
     * address outside its allowlist
     */
    async authenticate(
      headers: IncomingHttpHeaders,
      address: string | undefined,
      now: number,
    ): Promise<ScimKey> {
      const secret = bearer(headers.authorization);
      const token = secret && (await findScimToken(pool, hashApiKey(secret)));
      if (!token) throw refused();
      const allowed = toBlockList(token.ipAllowlist);
      if (!allows(allowed, address)) throw refused();
      if (headers['x-request-origin'] !== token.origin) throw refused(OTHER_ORIGIN);
      const seenLately = now - (token.lastSeenAt?.getTime() ?? 0) <= TOKEN_TOUCH_INTERVAL;
      if (!seenLately && !noting.has(token.id)) await note(token.id, new Date(now));
      return {
        id: token.id,
        companyId: token.companyId,
        workspaceId: token.companyId,
        limits: token.limits,
        permissions: SCIM_PERMISSION,
        groups: new Map(),
        blocked: NONE,
        allowlist: allowed,
      };
    },
  };
}

export type ScimAuthenticator = ReturnType<typeof createScimAuthenticator>;
