import type { IncomingHttpHeaders } from 'node:http';
import { isIPv6 } from 'node:net';
import { hashApiKey } from '../admin/api-keys.ts';
import { ApiError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Pool } from '../store/database.ts';
import { findScimToken } from '../store/scim-tokens/find-scim-token.ts';
import { touchScimToken } from '../store/scim-tokens/touch-scim-token.ts';
import { bearer, plain } from './authenticate.ts';
import { type ApiKey, toBlockList } from './known-keys.ts';

/** How exactly the last use of a token is known, in ms. */
const TOUCH_INTERVAL = 60_000;

/** Whom a SCIM token stands for. `workspaceId` is that of no workspace: limits are counted under the company. */
export interface ScimKey extends ApiKey {
  companyId: string;
}

/** RFC 7644 §2: a refusal says how to come in. */
const refused = () => new ApiError('scimUnauthorized', undefined, { 'WWW-Authenticate': 'Bearer' });

const SCIM_PERMISSION: ReadonlySet<string> = new Set(['scim']);
const NONE: ReadonlySet<string> = new Set();

/**
 * Who a SCIM token is. Looked up at every request, of which a company has some thousand a day: a revocation
 * takes effect at once.
 */
export function createScimAuthenticator(pool: Pool, log: Log) {
  /** Tokens whose last use is being noted: of a burst one request does it, and no other waits for its row. */
  const noting = new Set<string>();

  async function note(id: string, at: Date): Promise<void> {
    noting.add(id);
    await touchScimToken(pool, id, at)
      .catch((error) => log.warn({ err: error }, 'last use of a SCIM token not noted'))
      .finally(() => noting.delete(id));
  }

  return {
    /**
     * @throws {ApiError} 401 without a valid token, with another `X-Request-Origin` than the token's, and from an
     * address outside its allowlist
     */
    async authenticate(headers: IncomingHttpHeaders, address: string, now: number): Promise<ScimKey> {
      const secret = bearer(headers.authorization);
      const token = secret && (await findScimToken(pool, hashApiKey(secret)));
      if (!token || headers['x-request-origin'] !== token.origin) throw refused();
      const allowed = toBlockList(token.ipAllowlist);
      if (allowed && !allowed.check(plain(address), isIPv6(plain(address)) ? 'ipv6' : 'ipv4'))
        throw refused();
      const seenLately = now - (token.lastSeenAt?.getTime() ?? 0) <= TOUCH_INTERVAL;
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
