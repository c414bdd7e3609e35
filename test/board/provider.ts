import { generateKeyPairSync, type KeyObject, sign } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import Provider, { type Configuration } from 'oidc-provider';

export const CLIENT = { id: 'console', secret: 'what the console proves itself by' };

/** The provider's claims about a user. */
export type Claims = Record<string, unknown>;

/** Changes the claims of an ID token. The provider signs it again, or another key if `isForged` is set. */
export type Tamper = (claims: Claims) => { claims: Claims; isForged?: boolean };

const keyPair = () => generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;

const encode = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64url');

function signed(header: string, claims: Claims, key: KeyObject): string {
  const text = `${header}.${encode(claims)}`;
  return `${text}.${sign('sha256', Buffer.from(text), key).toString('base64url')}`;
}

/**
 * Starts an OpenID provider on loopback. It accepts any user name and returns the claims in `people`.
 *
 * @param redirectUri the allowed redirect URI
 * @param port port on loopback; absent for a free one
 */
export async function startProvider(redirectUri: string, { port = 0 } = {}) {
  const people = new Map<string, Claims>();
  const key = keyPair();
  const otherKey = keyPair();
  /** `padded`: the path whose responses get two million extra bytes. */
  const state: { tamper?: Tamper | undefined; padded?: string | undefined } = {};
  let callback: ReturnType<Provider['callback']> | undefined;
  const server = createServer((request, response) => void callback?.(request, response));
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  const configuration: Configuration = {
    clients: [
      {
        ...{ client_id: CLIENT.id, client_secret: CLIENT.secret, redirect_uris: [redirectUri] },
        ...{ response_types: ['code'], grant_types: ['authorization_code'] },
      },
    ],
    jwks: { keys: [{ ...key.export({ format: 'jwk' }), kid: 'one', alg: 'RS256', use: 'sig' } as never] },
    cookies: { keys: ['of this test'] },
    claims: { openid: ['sub'], email: ['email', 'email_verified'], profile: ['preferred_username'] },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ ...people.get(id), sub: id }) }),
    ttl: { AccessToken: 60, Grant: 60, IdToken: 60, Interaction: 60, Session: 60 },
    features: { devInteractions: { enabled: false } },
    interactions: { url: (_context, { uid }) => `/interaction/${uid}` },
    // Skips the consent page.
    async loadExistingGrant({ oidc }) {
      const grant = new oidc.provider.Grant({
        ...{ clientId: oidc.client!.clientId, accountId: oidc.session!.accountId! },
      });
      grant.addOIDCScope('openid email profile');
      await grant.save();
      return grant;
    },
  };
  const provider = new Provider(issuer, configuration);
  let tokenRequests = 0;
  let hold: { count: number; released: Promise<void> } | undefined;
  provider.use(async (context, next) => {
    if (context.path === '/token') tokenRequests++;
    if (context.path.startsWith('/interaction/')) {
      if (context.method !== 'POST') {
        context.type = 'html';
        context.body =
          '<!doctype html><title>Who?</title><form method="post"><label>Name <input name="login"></label><button>Go on</button></form>';
        return;
      }
      const login = new URLSearchParams(await bodyOf(context.req)).get('login')!;
      const result = login === '' ? { error: 'access_denied', error_description: '<script>no</script>' } : {};
      await provider.interactionFinished(context.req, context.res, {
        ...result,
        ...(login !== '' && { login: { accountId: login } }),
      });
      context.respond = false;
      return;
    }
    await next();
    if (context.path === '/token' && context.status >= 400 && hold) {
      hold.count++;
      await hold.released;
    }
    if (context.path === state.padded)
      context.body = { ...(context.body as object), padding: 'x'.repeat(2_000_000) };
    const body = context.body as { id_token?: string } | undefined;
    if (context.path !== '/token' || !body?.id_token || !state.tamper) return;
    const [header = '', payload = ''] = body.id_token.split('.');
    const { claims, isForged } = state.tamper(JSON.parse(Buffer.from(payload, 'base64url').toString()));
    context.body = { ...body, id_token: signed(header, claims, isForged ? otherKey : key) };
  });
  callback = provider.callback();

  return {
    ...{ issuer, people, state },
    /** Returns the number of token requests so far, including rejected ones. */
    tokenRequests: () => tokenRequests,
    /** Delays responses to rejected codes until `release` is called. */
    holdRefusals() {
      let release = () => {};
      const released = new Promise<void>((resolve) => {
        release = resolve;
      });
      const held = { count: 0, released };
      hold = held;
      return {
        count: () => held.count,
        release() {
          hold = undefined;
          release();
        },
      };
    },
    async stop() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

async function bodyOf(request: AsyncIterable<Buffer>): Promise<string> {
  let text = '';
  for await (const chunk of request) text += chunk;
  return text;
}

/** Creates a client that keeps cookies and follows redirects to the first page outside the provider. */
export function createWalker(board: { url: string }) {
  const cookies = new Map<string, string>();

  async function send(url: string, init: RequestInit = {}): Promise<Response> {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const answer = await fetch(url, {
      redirect: 'manual',
      ...init,
      headers: { accept: 'text/html', cookie },
    });
    for (const set of answer.headers.getSetCookie()) {
      const [, name = '', value = ''] = /^([^=]+)=([^;]*)/.exec(set)!;
      if (value === '') cookies.delete(name);
      else cookies.set(name, value);
    }
    return answer;
  }

  /** Returns the callback URL with the provider's response, without requesting it. */
  async function answerFor(login: string): Promise<string> {
    let at = `${board.url}/sign-in/oidc`;
    let answer = await send(at);
    for (let hops = 0; hops < 10; hops++) {
      const to = answer.headers.get('location');
      if (to !== null) {
        at = new URL(to, at).href;
        if (at.startsWith(board.url)) return at;
        answer = await send(at);
      } else answer = await send(at, { method: 'POST', body: new URLSearchParams({ login }) });
    }
    throw new Error(`the provider sends nowhere: ${answer.status} at ${at}`);
  }

  return { cookies, send, answerFor, enter: async (login: string) => send(await answerFor(login)) };
}
