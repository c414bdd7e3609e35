import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { createServer } from 'node:net';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { startBoard } from '../../src/board/server.ts';
import { searchAudit } from '../../src/store/audit-list.ts';
import { createAccount, createCompany } from '../setup/access.ts';
import { openBrowser } from '../setup/browser.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import { createVisitor } from './browser-session.ts';
import { account, createInstallation, type Installation, log } from './installation.ts';
import { DEFAULT_COMPANY } from './people.ts';
import { CLIENT, createWalker, startProvider, type Tamper } from './provider.ts';

let installation: Installation;
let board: Awaited<ReturnType<typeof startBoard>>;
let provider: Awaited<ReturnType<typeof startProvider>>;

/** Starts a console with this provider, which may be unreachable. */
async function boardFor(issuer: string, port: number) {
  const { config, connection, database, producer } = installation;
  const url = `http://127.0.0.1:${port}`;
  const oidc = { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: CLIENT.id, OIDC_CLIENT_SECRET: CLIENT.secret };
  return startBoard(
    { config: { ...config, ...oidc, BOARD_PORT: port, BOARD_URL: url }, account, log },
    { database, connection, producer, loss: () => undefined },
    { lacking: () => [] },
  );
}

beforeAll(async () => {
  installation = await createInstallation('postgres');
  const port = await leasePort();
  provider = await startProvider(`http://127.0.0.1:${port}/sign-in/oidc/callback`);
  board = await boardFor(provider.issuer, port);
}, 120_000);
afterAll(async () => {
  await board?.stop();
  await provider?.stop();
  await installation?.stop();
});

const pool = () => installation.database.pool;

/** Creates an account, and a user of the provider with the account's address. */
async function person(change: Record<string, unknown> = {}, company = DEFAULT_COMPANY) {
  const email = `${uuidv7()}@example.com`;
  const id = await createAccount(pool() as never, company, email);
  provider.people.set(email, { email: email.toUpperCase(), email_verified: true, ...change });
  return { id, email };
}

const openWalker = () => createWalker(board);

const SESSION = 'penstock_board';

const actionsAbout = async (subject: string) =>
  (await searchAudit(pool(), { subject, limit: 50 })).rows.reverse();

test('a user of the provider signs in to the account of the verified address, as audited', async () => {
  const { id, email } = await person();
  const browser = await openBrowser();
  try {
    const page = await browser.newPage();
    await page.goto(`${board.url}/sign-in`);
    await page.getByRole('link', { name: 'Sign in with single sign-on' }).click();
    await page.getByLabel('Name').fill(email);
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('heading', { name: 'Health' }).waitFor();
    expect(page.url()).toBe(`${board.url}/`);
    await page.goto(`${board.url}/sign-out`);
    await page.getByText(`signed in as ${email}`).waitFor();
    // The cookies of the sign-in are gone, and scripts cannot read the session cookie.
    const left = (await browser.cookies(board.url)).filter(({ name }) => name.startsWith('penstock'));
    expect(left.map(({ name, httpOnly, sameSite }) => [name, httpOnly, sameSite])).toEqual([
      [SESSION, true, 'Lax'],
    ]);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL(`${board.url}/sign-in`);
  } finally {
    await browser.close();
  }
  const rows = await actionsAbout(id);
  expect(rows.map(({ action, detail }) => [action, detail.through])).toEqual([
    ['sessions.begin', 'openid_connect'],
    ['sessions.end', undefined],
  ]);
  expect(rows[0]).toMatchObject({ actorId: id, actorName: email, companyId: DEFAULT_COMPANY });
}, 60_000);

describe('a sign-in gets an error and no session for', () => {
  async function refusal(login: string) {
    const walker = openWalker();
    const answer = await walker.enter(login);
    expect(walker.cookies.has(SESSION)).toBe(false);
    return { status: answer.status, text: await answer.text() };
  }

  test('a user without an account, and no account is created', async () => {
    const email = `${uuidv7()}@example.com`;
    provider.people.set(email, { email, email_verified: true });
    expect(await refusal(email)).toMatchObject({
      ...{ status: 403, text: expect.stringContaining('No account matches your sign-in.') },
    });
    const { rows } = await pool().query('select from accounts where email = $1', [email]);
    expect(rows).toEqual([]);
  });

  test('a deactivated account', async () => {
    const { id, email } = await person();
    await pool().query('update accounts set active = false where id = $1', [id]);
    const { status, text } = await refusal(email);
    expect([status, text.includes('Your account is not active. Ask your administrator.')]).toEqual([
      403,
      true,
    ]);
  });

  test("an account of another company than the provider's", async () => {
    const company = await createCompany(pool() as never, `company-${uuidv7()}`);
    const { email } = await person({}, company);
    expect((await refusal(email)).text).toContain('No account matches your sign-in.');
  });

  test.each([
    ['is not verified', { email_verified: false }],
    ['has no verification', { email_verified: undefined }],
    ['is not a string', { email: ['a@example.com'] }],
  ])('a user whose address %s', async (_, change) => {
    const { email } = await person(change);
    const { status, text } = await refusal(email);
    expect([status, text.includes('did not confirm your email address')]).toEqual([403, true]);
  });

  test('a user whom the provider rejects, without quoting the provider', async () => {
    const { status, text } = await refusal('');
    expect([status, text.includes('The provider did not sign you in. Try again.')]).toEqual([403, true]);
    expect(text).not.toMatch(/no<\/script|&lt;script|access_denied/);
  });
});

describe('a callback is rejected', () => {
  test('in another browser, with another state, or a second time', async () => {
    const { email } = await person();
    const ada = openWalker();
    const answer = await ada.answerFor(email);
    const statusOf = async (walker: ReturnType<typeof openWalker>, url: string) =>
      (await walker.send(url)).status;
    const kept = new Map(ada.cookies);
    const withCookiesOf = (cookies: Map<string, string>) => {
      const walker = openWalker();
      for (const [name, value] of cookies) walker.cookies.set(name, value);
      return walker;
    };
    expect(await statusOf(openWalker(), answer)).toBe(400);
    const grace = openWalker();
    await grace.answerFor((await person()).email);
    expect(await statusOf(grace, answer)).toBe(400);
    const other = new URL(answer);
    other.searchParams.set('state', 'A'.repeat(43));
    expect(await statusOf(withCookiesOf(kept), other.href)).toBe(400);
    expect(await statusOf(withCookiesOf(kept), `${answer}&state=x`)).toBe(400);
    expect(await statusOf(withCookiesOf(kept), `${answer}&x=${'x'.repeat(9000)}`)).toBe(400);
    expect(await statusOf(withCookiesOf(kept), answer)).toBe(303);
    expect(await statusOf(withCookiesOf(kept), answer)).toBe(400);
  });

  const tampers: [string, Tamper][] = [
    ['an ID token with another nonce', (claims) => ({ claims: { ...claims, nonce: 'A'.repeat(43) } })],
    ['an ID token without a nonce', ({ nonce: _, ...claims }) => ({ claims })],
    ['an ID token for another client', (claims) => ({ claims: { ...claims, aud: 'another' } })],
    [
      'an ID token of another issuer',
      (claims) => ({ claims: { ...claims, iss: 'https://elsewhere.example' } }),
    ],
    [
      'an expired ID token',
      (claims) => ({ claims: { ...claims, exp: Math.floor(Date.now() / 1000) - 600 } }),
    ],
    ['an ID token signed with another key', (claims) => ({ claims, isForged: true })],
  ];

  test.each(tampers)('with %s', async (_, tamper) => {
    const { email } = await person();
    const walker = openWalker();
    provider.state.tamper = tamper;
    const answer = await walker.enter(email).finally(() => {
      provider.state.tamper = undefined;
    });
    expect([answer.status, walker.cookies.has(SESSION)]).toEqual([503, false]);
    // The next sign-in works, so the provider is not treated as failed.
    expect((await openWalker().enter(email)).status).toBe(303);
  });
});

test.each<[string, Tamper]>([
  ['names another authorized party', (claims) => ({ claims: { ...claims, azp: 'another client' } })],
  ['has an empty subject', (claims) => ({ claims: { ...claims, sub: '' } })],
])('refuses a sign-in whose ID token %s', async (_, tamper) => {
  const { email } = await person();
  const walker = openWalker();
  provider.state.tamper = tamper;
  const answer = await walker.enter(email).finally(() => {
    provider.state.tamper = undefined;
  });
  expect([answer.status, walker.cookies.has(SESSION)]).toEqual([403, false]);
});

test('real sign-ins succeed while twelve clients of one source wait with made-up codes', async () => {
  const held = provider.holdRefusals();
  const strangers = Array.from({ length: 12 }, () => exchangeFrom('127.0.0.2', 'made-up'));
  await waitUntil(() => held.count() > 0, { what: 'a made-up code at the provider' });
  try {
    const { email } = await person();
    expect((await openWalker().enter(email)).status).toBe(303);
  } finally {
    held.release();
  }
  const statuses = await Promise.all(strangers);
  expect(statuses.filter((status) => ![400, 429].includes(status))).toEqual([]);
});

test('asks the provider once for each state, so a repeated callback costs no request', async () => {
  const walker = openWalker();
  const answer = await walker.answerFor((await person()).email);
  const madeUp = new URL(answer);
  madeUp.searchParams.set('code', 'made-up');
  const cookies = new Map(walker.cookies);
  const before = provider.tokenRequests();
  for (let time = 0; time < 3; time++) {
    for (const [name, value] of cookies) walker.cookies.set(name, value);
    expect((await walker.send(madeUp.href)).status).toBe(400);
  }
  expect(provider.tokenRequests()).toBe(before + 1);
});

/** Starts a sign-in and sends a made-up code to the callback, from a loopback address. */
async function exchangeFrom(localAddress: string, code: string): Promise<number> {
  const walker = openWalker();
  const to = new URL((await walker.send(`${board.url}/sign-in/oidc`)).headers.get('location')!);
  const query = new URLSearchParams({ code, state: to.searchParams.get('state')!, iss: provider.issuer });
  const cookie = [...walker.cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  const request = get(`${board.url}/sign-in/oidc/callback?${query}`, { localAddress, headers: { cookie } });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  response.resume();
  return response.statusCode!;
}

test('a sign-in with the provider ends the previous session of the browser', async () => {
  const [ada, grace] = [await person(), await person()];
  const walker = openWalker();
  await walker.enter(ada.email);
  const first = walker.cookies.get(SESSION)!;
  // Without its cookies, the provider asks for the user again.
  for (const name of [...walker.cookies.keys()]) if (name !== SESSION) walker.cookies.delete(name);
  await walker.enter(grace.email);
  const visitor = createVisitor(board);
  expect((await visitor.get('/queues/api/queues', { cookie: `${SESSION}=${first}` })).status).toBe(401);
  expect((await actionsAbout(ada.id)).map(({ action }) => action)).toEqual([
    'sessions.begin',
    'sessions.end',
  ]);
});

test('with an https BOARD_URL, the cookies of the sign-in are never sent over http', async () => {
  const { config, connection, database, producer } = installation;
  const oidc = { OIDC_ISSUER: provider.issuer, OIDC_CLIENT_ID: CLIENT.id };
  const secure = await startBoard(
    { config: { ...config, ...oidc, BOARD_PORT: 0, BOARD_URL: 'https://console.example' }, account, log },
    { database, connection, producer, loss: () => undefined },
    { lacking: () => [] },
  );
  try {
    const answer = await createVisitor(secure).get('/sign-in/oidc');
    expect(answer.headers.getSetCookie()).toEqual([
      expect.stringMatching(
        /^penstock_board_oidc=[\w-]{43}; .*Path=\/sign-in\/oidc;.* HttpOnly; Secure; SameSite=Lax$/,
      ),
    ]);
    const to = new URL(answer.headers.get('location')!);
    // The redirect URI comes from BOARD_URL, whatever host was requested.
    expect(to.searchParams.get('redirect_uri')).toBe('https://console.example/sign-in/oidc/callback');
    expect(to.searchParams.get('code_challenge_method')).toBe('S256');
  } finally {
    await secure.stop();
  }
});

describe('while the provider', () => {
  test('is unreachable, the console starts, accepts passwords, and works when it returns', async () => {
    const [port, at] = [await leasePort(), await leasePort()];
    const lone = await boardFor(`http://127.0.0.1:${at}`, port);
    try {
      const visitor = createVisitor(lone);
      const answer = await visitor.get('/sign-in/oidc', { accept: 'text/html' });
      expect([answer.status, await answer.text()]).toEqual([
        ...[503, expect.stringContaining('The provider did not answer correctly.')],
      ]);
      expect((await visitor.signIn()).status).toBe(303);
      const late = await startProvider(`${lone.url}/sign-in/oidc/callback`, { port: at });
      expect((await visitor.get('/sign-in/oidc')).status).toBe(303);
      await late.stop();
    } finally {
      await lone.stop();
    }
  });

  test.each(['/.well-known/openid-configuration', '/token'])(
    'sends more than 1 MB at %s, the sign-in fails',
    async (path) => {
      const { email } = await person();
      const lone = await boardFor(provider.issuer, await leasePort());
      provider.state.padded = path;
      try {
        const { status } =
          path === '/token'
            ? await openWalker().enter(email)
            : await createVisitor(lone).get('/sign-in/oidc');
        expect(status).toBe(503);
      } finally {
        provider.state.padded = undefined;
        await lone.stop();
      }
    },
  );

  test('does not respond, a sign-in fails within its timeout', async () => {
    const silent = createServer();
    silent.listen(0, '127.0.0.1');
    await once(silent, 'listening');
    const { port: at } = silent.address() as { port: number };
    const lone = await boardFor(`http://127.0.0.1:${at}`, await leasePort());
    try {
      const began = performance.now();
      const answers = await Promise.all(
        Array.from({ length: 5 }, () => createVisitor(lone).get('/sign-in/oidc')),
      );
      expect(answers.map(({ status }) => status)).toEqual(Array(5).fill(503));
      expect(performance.now() - began).toBeLessThan(10_000);
    } finally {
      await lone.stop();
      silent.close();
    }
  }, 30_000);
});

test('without a provider there is no sign-in button and no route', async () => {
  const plain = await installation.startBoard();
  const visitor = createVisitor(plain);
  expect(await (await visitor.get('/sign-in', { accept: 'text/html' })).text()).not.toContain(
    'single sign-on',
  );
  expect((await visitor.get('/sign-in/oidc/callback?code=x')).status).toBe(401);
});
