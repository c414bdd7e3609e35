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

/** For each request to the provider; a sign-in makes four at most. */
const PATIENCE_SECONDS = 5;

/** The provider's endpoints and keys are looked up again after this long; meanwhile a new key is found by its id. */
const KNOWN_MS = 3_600_000;

/** Once they cannot be looked up, those that are known are used for this long. */
const AGAIN_MS = 60_000;

/**
 * Sign-ins that the provider is asked about at once, because each made-up code costs a request to it. Sources take turns,
 * and a source has half of the places at most, so that strangers with made-up codes cannot keep real users out.
 */
const EXCHANGES = { atOnce: 8, atOnceOfOne: 4, mostWaiting: 256, mostWaitingOfOne: 64, patience: 5000 };

/** States that were answered and must not be used again; a state expires after LIFETIME_MS. */
const MAX_USED_STATES = 20_000;

/** Characters of an answer's query: a code, a state, and what little stands beside them. */
const MOST_OF_ANSWER = 8192;

/** What a person has to come back within. */
const LIFETIME_MS = 600_000;

/** Where a person is sent to the provider, and where it sends back to; the latter is registered there. */
const PLACE = '/sign-in/oidc';
const CALLBACK = `${PLACE}/callback`;

/** Why somebody is not signed in. Nothing that the provider or the address says is repeated. */
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

/** Whom the provider vouches for. */
export interface Proved {
  /** The userName of an account, in lower case. */
  email: string;
  /** Name or id of the company for which the provider speaks. */
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

/** What the secret in the browser's cookie makes of it: whoever knows one of these knows neither it nor the others. */
const derived = (secret: string, purpose: 'state' | 'nonce' | 'verifier') =>
  createHmac('sha256', secret).update(purpose).digest('base64url');

function isEqual(given: string, expected: string): boolean {
  const [one, other] = [Buffer.from(given), Buffer.from(expected)];
  return one.length === other.length && timingSafeEqual(one, other);
}

/** Loads the library and asks the provider for its endpoints when somebody first needs them, one look-up at a time. */
function createProvider(config: OidcConfig) {
  let known: { configuration: Configuration; until: number } | undefined;
  let asking: Promise<Configuration> | undefined;

  async function discover(): Promise<Configuration> {
    const library = await import('openid-client');
    const { OIDC_ISSUER, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET } = config;
    const secret = OIDC_CLIENT_SECRET || undefined;
    const configuration = await library.discovery(
      ...([new URL(OIDC_ISSUER), OIDC_CLIENT_ID, secret, authentication(library, secret)] as const),
      {
        timeout: PATIENCE_SECONDS,
        [library.customFetch]: fetchBounded,
        // The setting allows http on this machine alone. Signatures are checked, whatever the connection proves.
        execute: [
          ...(OIDC_ISSUER.startsWith('http:') ? [library.allowInsecureRequests] : []),
          library.enableNonRepudiationChecks,
        ],
      },
    );
    known = { configuration, until: Date.now() + KNOWN_MS };
    return configuration;
  }

  return async (): Promise<{ library: Library; configuration: Configuration }> => {
    const library = await import('openid-client');
    if (known && Date.now() < known.until) return { library, configuration: known.configuration };
    asking ??= discover().finally(() => {
      asking = undefined;
    });
    try {
      return { library, configuration: await asking };
    } catch (error) {
      if (!known) throw error;
      known.until = Date.now() + AGAIN_MS;
      return { library, configuration: known.configuration };
    }
  };
}

/** Bytes of one answer of the provider, unpacked. Endpoints, keys and claims have some kilobytes. */
const MAX_ANSWER_BYTES = 1_048_576;

/** Fetches for the library, which would read an answer of any length into memory. */
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

/** By the header, which is the default of the standard, unless the provider takes the secret in the body alone. */
function authentication(library: Library, secret: string | undefined): ReturnType<Library['None']> {
  if (secret === undefined) return library.None();
  const [basic, post] = [library.ClientSecretBasic(secret), library.ClientSecretPost(secret)];
  // biome-ignore lint/complexity/useMaxParams: the library calls it with these.
  return (server, client, body, headers) => {
    const ways = server.token_endpoint_auth_methods_supported ?? ['client_secret_basic'];
    return (ways.includes('client_secret_basic') ? basic : post)(server, client, body, headers);
  };
}

/**
 * Authorization code flow with PKCE, state and nonce, which all follow from a secret in a cookie of the browser.
 * Nothing is kept here: whoever begins without end fills nothing, and the answer may come to another process.
 */
function createFlow(config: OidcConfig, tell: (error: unknown) => void) {
  const provider = createProvider(config);
  const base = config.BOARD_URL.replace(/\/$/, '');
  const exchanges = createSemaphore({ ...EXCHANGES, refusal: () => new TooManySignIns() });
  const usedStates = new LRUCache<string, true>({ max: MAX_USED_STATES, ttl: LIFETIME_MS });

  /** @param claims of the ID token, or of the provider's answer about the user */
  function addressIn(claims: Record<string, unknown>): string | undefined {
    const name = config.OIDC_ACCOUNT_CLAIM;
    const value = claims[name];
    if (typeof value !== 'string') return undefined;
    // Some providers write booleans as texts.
    if (name === 'email' && String(claims.email_verified) !== 'true') return undefined;
    return normalizeStaffEmail(value);
  }

  async function ask(secret: string, search: string): Promise<Proved | Problem> {
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
      const canAsk = configuration.serverMetadata().userinfo_endpoint !== undefined;
      const email =
        addressIn(claims) ??
        (canAsk
          ? addressIn(await library.fetchUserInfo(configuration, tokens.access_token, claims.sub))
          : undefined);
      return email === undefined ? 'unverified' : { email, company: config.OIDC_COMPANY };
    } catch (error) {
      if (error instanceof library.AuthorizationResponseError) return 'refused';
      // Of a code that was used before, or is too old.
      if (error instanceof library.ResponseBodyError && error.error === 'invalid_grant') return 'stale';
      throw error;
    }
  }

  return {
    /** Where to send the browser. @throws when the provider does not answer */
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
     * Exchanges the provider's answer for the user that it vouches for.
     * @param search the query with which the provider has sent the browser back
     * @param source the client's network, which shares its places
     */
    async finish(
      secret: string | undefined,
      { search, source }: { search: string; source: string },
    ): Promise<Proved | Problem> {
      if (!isSecret(secret) || search.length > MOST_OF_ANSWER) return 'stale';
      const [state = '', ...others] = new URLSearchParams(search).getAll('state');
      if (others.length > 0 || !isEqual(state, derived(secret, 'state'))) return 'stale';
      // One answer per state: repeating one with other codes would cost the provider a request each time.
      if (usedStates.has(state)) return 'stale';
      usedStates.set(state, true);
      try {
        return await exchanges.use(source, () => ask(secret, search));
      } catch (error) {
        if (error instanceof TooManySignIns) {
          // The provider was not asked, so the same answer may come again.
          usedStates.delete(state);
          return 'busy';
        }
        tell(error);
        return 'away';
      }
    },
  };
}

export interface OpenIdSignIn {
  config: OidcConfig;
  /** Of what nobody who is known has asked for. */
  warn(members: object, text: string): void;
  /** Begins the session of whoever the provider vouches for, and sends to the first page. */
  enter(
    request: Request,
    response: Response,
    proved: Proved,
  ): Promise<'done' | 'unknown' | 'inactive' | 'busy'>;
  /** The form to sign in, with a sentence. */
  page(problem: string): string;
}

/** Where the page to sign in leads for it; undefined: no provider is set. */
export const openIdPath = ({ OIDC_ISSUER, BOARD_URL }: OidcConfig): string | undefined =>
  OIDC_ISSUER === '' ? undefined : `${BOARD_URL.replace(/\/$/, '')}${PLACE}`;

const COOKIE = 'penstock_board_oidc';

/** Signing in by OpenID Connect; of a console without a provider, no route at all. */
export function createOpenIdSignIn({ config, warn, enter, page }: OpenIdSignIn): Router {
  const router = express.Router({ caseSensitive: true, strict: true });
  if (config.OIDC_ISSUER === '') return router;
  // Its code alone: a message may quote what the provider, or a stranger, has sent.
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
    // Without an answer of the provider, reloading the page tries again, which needs the cookie.
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
