import { createHmac, timingSafeEqual } from 'node:crypto';
import type { Request, Response, Router } from 'express';
import express from 'express';
import { LRUCache } from 'lru-cache';
import type { Configuration, CustomFetchOptions } from 'openid-client';
import { readUpTo } from '../platform/bounded-body.ts';
import { createSemaphore } from '../platform/concurrency.ts';
import type { Config } from '../platform/config.ts';
import { sourceOf } from '../platform/reach.ts';
import { withTimeLimit } from '../platform/time-limit.ts';
import { normalizeStaffEmail } from '../profile/addresses.ts';
import { clientOf, isSecret, newSecret, readCookie } from './sessions.ts';

type Library = typeof import('openid-client');

/** Timeout in seconds for each request to the provider. A sign-in makes at most four. */
const PATIENCE_SECONDS = 5;

/**
 * Milliseconds for which the provider's endpoints are reused. The library fetches a new signing key by its id at any
 * time.
 */
const KNOWN_MS = 3_600_000;

/** Milliseconds for which the last known endpoints are reused after a failed lookup. */
const AGAIN_MS = 60_000;

/**
 * Limits for sign-ins that query the provider, because each made-up code costs a request to it. Sources take turns, and
 * one source gets at most half of the slots, so that made-up codes cannot block real users.
 */
const EXCHANGES = {
  maxRunning: 8,
  maxRunningPerOwner: 4,
  maxWaiting: 256,
  maxWaitingPerOwner: 64,
  patience: 5000,
};

/** Maximum number of used states that are remembered. A state expires after LIFETIME_MS. */
const MAX_USED_STATES = 20_000;

/** Maximum length of the callback's query in characters: a code, a state and a few short parameters. */
const MAX_CALLBACK_LENGTH = 8192;

/** Milliseconds within which the user has to return from the provider. */
const LIFETIME_MS = 600_000;

/** Path that redirects to the provider, and the callback path that must be registered there. */
const PLACE = '/sign-in/oidc';
const CALLBACK = `${PLACE}/callback`;

/** Errors of a sign-in, as status and text. The texts quote neither the provider nor the URL. */
const problems = {
  refused: [403, 'The provider did not sign you in. Try again.'],
  stale: [400, 'This sign-in was started in another browser, or too long ago. Start again.'],
  unverified: [
    403,
    'The provider did not confirm your email address. Ask the administrator of the provider.',
  ],
  unknown: [403, 'No account matches your sign-in. Ask your administrator for an account.'],
  inactive: [403, 'Your account is not active. Ask your administrator.'],
  busy: [429, 'Too many sign-ins are in progress. Try again in a few seconds.'],
  away: [503, 'The provider did not answer correctly. Try again, or sign in with a password.'],
} as const satisfies Record<string, readonly [number, string]>;

type Problem = keyof typeof problems;

class TooManySignIns extends Error {
  override name = 'TooManySignIns';
}

/** A user whom the provider authenticated. */
export interface VerifiedIdentity {
  /** User name of an account, in lower case. */
  email: string;
  /** Name or id of the company for which the provider is trusted. */
  company: string;
}

export type OidcConfig = Pick<
  Config,
  | 'BOARD_URL'
  | 'OIDC_ISSUER'
  | 'OIDC_CLIENT_ID'
  | 'OIDC_CLIENT_SECRET'
  | 'OIDC_ACCOUNT_CLAIM'
  | 'OIDC_COMPANY'
>;

/**
 * Derives a value from the secret in the browser's cookie. A derived value reveals neither the secret nor the others.
 */
const derived = (secret: string, purpose: 'state' | 'nonce' | 'verifier') =>
  createHmac('sha256', secret).update(purpose).digest('base64url');

function isEqual(given: string, expected: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(expected)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/** Returns a function that loads the library and the provider's endpoints on first use, with one lookup at a time. */
function createProvider(config: OidcConfig) {
  let cached: { configuration: Configuration; until: number } | undefined;
  let discovery: Promise<Configuration> | undefined;

  async function discover(): Promise<Configuration> {
    const library = await import('openid-client');
    const { OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET } = config;
    const secret = OIDC_CLIENT_SECRET || undefined;
    const configuration = await library.discovery(
      ...([new URL(OIDC_ISSUER), OIDC_CLIENT_ID, secret, authentication(library, secret)] as const),
      {
        timeout: PATIENCE_SECONDS,
        [library.customFetch]: fetchBounded,
        // The setting allows http on this machine only. Signatures are always checked, even over TLS.
        execute: [
          ...(OIDC_ISSUER.startsWith('http:') ? [library.allowInsecureRequests] : []),
          library.enableNonRepudiationChecks,
        ],
      },
    );
    cached = { configuration, until: Date.now() + KNOWN_MS };
    return configuration;
  }

  return async (): Promise<{ library: Library; configuration: Configuration }> => {
    const library = await import('openid-client');
    if (cached && Date.now() < cached.until) return { library, configuration: cached.configuration };
    discovery ??= discover().finally(() => {
      discovery = undefined;
    });
    try {
      return { library, configuration: await discovery };
    } catch (error) {
      if (!cached) throw error;
      cached.until = Date.now() + AGAIN_MS;
      return { library, configuration: cached.configuration };
    }
  };
}

/**
 * Maximum size in bytes of a decompressed response from the provider. Endpoints, keys and claims have a few kilobytes.
 */
const MAX_ANSWER_BYTES = 1_048_576;

/** Fetches for the library, which would read a response of any length into memory. */
async function fetchBounded(
  url: string,
  { body, signal, ...options }: CustomFetchOptions,
): Promise<globalThis.Response> {
  const links = { signals: [signal], milliseconds: PATIENCE_SECONDS * 1000 };
  return withTimeLimit(links, async (limit) => {
    const response = await fetch(url, { ...options, signal: limit, ...(body != null && { body }) });
    if (response.body === null) return response;
    const { bytes, isWhole } = await readUpTo(MAX_ANSWER_BYTES, response.body);
    if (!isWhole)
      throw Object.assign(new Error(`the provider sent more than ${MAX_ANSWER_BYTES} bytes`), {
        code: 'ANSWER_TOO_LONG',
      });
    const { status, statusText, headers } = response;
    return new globalThis.Response(bytes.length > 0 ? bytes : null, { status, statusText, headers });
  });
}

/**
 * Authenticates with the header (the standard's default), or in the body if the provider does not support the header.
 */
function authentication(library: Library, secret: string | undefined): ReturnType<Library['None']> {
  if (secret === undefined) return library.None();
  const [basic, post] = [library.ClientSecretBasic(secret), library.ClientSecretPost(secret)];
  // biome-ignore lint/complexity/useMaxParams: the library calls it with these.
  return (server, client, body, headers) => {
    const methods = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    return (methods.includes('client_secret_basic') ? basic : post)(server, client, body, headers);
  };
}

/**
 * Authorization code flow with PKCE, state and nonce, all derived from a secret in a browser cookie. The server stores
 * no started sign-ins, so they need no memory, and another process can handle the callback.
 */
function createFlow(config: OidcConfig, report: (error: unknown) => void) {
  const provider = createProvider(config);
  const base = config.BOARD_URL.replace(/\/$/, '');
  const exchanges = createSemaphore({ ...EXCHANGES, refusal: () => new TooManySignIns() });
  const usedStates = new LRUCache<string, true>({ max: MAX_USED_STATES, ttl: LIFETIME_MS });

  /** Returns the account name in the claims of the ID token or the userinfo response; undefined if it is not usable. */
  function addressIn(claims: Record<string, unknown>): string | undefined {
    const name = config.OIDC_ACCOUNT_CLAIM;
    const value = claims[name];
    if (typeof value !== 'string') return undefined;
    // Some providers send booleans as strings.
    if (name === 'email' && String(claims.email_verified) !== 'true') return undefined;
    return normalizeStaffEmail(value);
  }

  async function exchange(secret: string, search: string): Promise<VerifiedIdentity | Problem> {
    const { library, configuration } = await provider();
    try {
      const tokens = await library.authorizationCodeGrant(
        configuration,
        new URL(`${base}${CALLBACK}?${search}`),
        {
          pkceCodeVerifier: derived(secret, 'verifier'),
          expectedState: derived(secret, 'state'),
          expectedNonce: derived(secret, 'nonce'),
          idTokenExpected: true,
        },
      );
      const claims = tokens.claims()!;
      // A token for another client, or about an unnamed subject, proves nothing about this user.
      const isForOthers = claims.azp !== undefined && claims.azp !== config.OIDC_CLIENT_ID;
      if (isForOthers || claims.sub === '') return 'refused';
      const hasUserInfo = configuration.serverMetadata().userinfo_endpoint !== undefined;
      const email =
        addressIn(claims) ??
        (hasUserInfo
          ? addressIn(await library.fetchUserInfo(configuration, tokens.access_token, claims.sub))
          : undefined);
      return email === undefined ? 'unverified' : { email, company: config.OIDC_COMPANY };
    } catch (error) {
      if (error instanceof library.AuthorizationResponseError) return 'refused';
      // The code was already used or has expired.
      if (error instanceof library.ResponseBodyError && error.error === 'invalid_grant') return 'stale';
      throw error;
    }
  }

  return {
    /**
     * Returns the provider's URL for the browser.
     * @throws if the provider does not answer
     */
    async begin(secret: string): Promise<URL> {
      const { library, configuration } = await provider();
      return library.buildAuthorizationUrl(configuration, {
        ...{ redirect_uri: `${base}${CALLBACK}`, response_type: 'code', scope: 'openid email profile' },
        ...{ state: derived(secret, 'state'), nonce: derived(secret, 'nonce') },
        code_challenge: await library.calculatePKCECodeChallenge(derived(secret, 'verifier')),
        code_challenge_method: 'S256',
      });
    },

    /**
     * Exchanges the provider's response for the authenticated user.
     * @param search the query of the callback URL
     * @param source the client's network, which shares one limit
     */
    async finish(
      secret: string | undefined,
      { search, source }: { search: string; source: string },
    ): Promise<VerifiedIdentity | Problem> {
      if (!isSecret(secret) || search.length > MAX_CALLBACK_LENGTH) return 'stale';
      const [state = '', ...others] = new URLSearchParams(search).getAll('state');
      if (others.length > 0 || !isEqual(state, derived(secret, 'state'))) return 'stale';
      // One response per state. Otherwise, repeating it with other codes would cost the provider a request each time.
      if (usedStates.has(state)) return 'stale';
      usedStates.set(state, true);
      try {
        return await exchanges.use(source, () => exchange(secret, search));
      } catch (error) {
        if (error instanceof TooManySignIns) {
          // The provider was not queried, so the same response may be sent again.
          usedStates.delete(state);
          return 'busy';
        }
        report(error);
        return 'away';
      }
    },
  };
}

interface OpenIdSignIn {
  config: OidcConfig;
  /** Logs a warning about a request without a session. */
  warn(members: object, text: string): void;
  /** Starts a session for the authenticated user and redirects to the requested page. */
  enter(
    request: Request,
    response: Response,
    proved: VerifiedIdentity,
  ): Promise<'done' | 'unknown' | 'inactive' | 'busy'>;
  /** Renders the sign-in form with an error. */
  page(problem: string): string;
}

/** URL at which OpenID sign-in starts; undefined if no provider is configured. */
export const openIdPath = ({ OIDC_ISSUER, BOARD_URL }: OidcConfig): string | undefined =>
  OIDC_ISSUER === '' ? undefined : `${BOARD_URL.replace(/\/$/, '')}${PLACE}`;

const COOKIE = 'penstock_board_oidc';

/** Creates the OpenID Connect routes. Without a provider, the router is empty. */
export function createOpenIdSignIn({ config, warn, enter, page }: OpenIdSignIn): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  if (config.OIDC_ISSUER === '') return router;
  // Log only the error code: a message may quote input from the provider or an unauthenticated client.
  const flow = createFlow(config, (error) =>
    warn({ code: codeOf(error) }, 'the OpenID provider does not answer as it should'),
  );
  const cookie = {
    ...({ httpOnly: true, sameSite: 'lax', path: PLACE } as const),
    secure: config.BOARD_URL.startsWith('https:'),
  };
  const sorry = (response: Response, problem: Problem) => {
    const [status, sentence] = problems[problem];
    if (status === 429 || status === 503) response.set('Retry-After', '1');
    response.status(status).send(page(sentence));
  };

  router.get(PLACE, async (_request, response) => {
    response.set('Cache-Control', 'no-store');
    const secret = newSecret();
    const to = await flow.begin(secret).catch((error) => {
      warn({ code: codeOf(error) }, 'the OpenID provider cannot be reached');
      return undefined;
    });
    if (!to) return sorry(response, 'away');
    response.cookie(COOKIE, secret, { ...cookie, maxAge: LIFETIME_MS });
    response.redirect(303, to.href);
  });

  router.get(CALLBACK, async (request, response) => {
    response.set('Cache-Control', 'no-store');
    const [, search = ''] = request.url.split(/\?(.*)/s);
    const source = sourceOf(clientOf(request).address ?? '');
    const proved = await flow.finish(readCookie(request, COOKIE), { search, source });
    // If the provider was not queried, reloading the page tries again and needs the cookie.
    if (proved !== 'busy') response.clearCookie(COOKIE, cookie);
    if (typeof proved === 'string') return sorry(response, proved);
    const entered = await enter(request, response, proved);
    if (entered !== 'done') sorry(response, entered);
  });

  return router;
}

function codeOf(error: unknown): string {
  const { code, cause } = error as { code?: unknown; cause?: { code?: unknown } };
  return String(cause?.code ?? code ?? (error as Error).name).slice(0, 60);
}
