import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createLockout } from '../../src/board/lockouts.ts';
import { browserOf, createOperatorSessions } from '../../src/board/sessions.ts';
import { createVisitor } from './browser-session.ts';
import { account, createInstallation, type Installation } from './installation.ts';

describe('signing in to the console', () => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await createInstallation('postgres');
  });
  afterAll(() => installation.stop());

  async function arrive() {
    const board = await installation.startBoard();
    return { board, visitor: createVisitor(board) };
  }

  test('without a session pages redirect, the API gets 401, and /healthz and /readyz answer', async () => {
    const { visitor } = await arrive();
    for (const path of ['/', '/queues/queue/lane-0', '/users', '/sign-out']) {
      const answer = await visitor.get(path, { accept: 'text/html' });
      expect([path, answer.status, answer.headers.get('location')]).toEqual([path, 303, '/sign-in']);
    }
    for (const path of [
      '/queues/api/queues',
      '/queues/api/redis/stats',
      '/queues/static/images/logo.svg',
      '/queues/queue/lane-0',
      '/nowhere',
    ]) {
      const answer = await visitor.get(path);
      expect([path, answer.status]).toEqual([path, 401]);
      expect(await answer.json()).toEqual({ message: 'Sign in to the console first.' });
    }
    expect((await visitor.put('/queues/api/queues/dead-letters/some/retry')).status).toBe(401);
    const readiness = await visitor.get('/readyz');
    expect(await readiness.json()).toEqual({ message: 'ready', missing: [] });
    const health = await visitor.get('/healthz');
    expect([health.status, await health.json()]).toEqual([200, { message: 'alive' }]);
  });

  test('the right password starts a session with an HttpOnly and SameSite cookie', async () => {
    const { visitor } = await arrive();
    const answer = await visitor.signIn();
    expect([answer.status, answer.headers.get('location')]).toEqual([303, '/home']);
    expect(answer.headers.getSetCookie()).toEqual([
      expect.stringMatching(/^penstock_board=[\w-]{43}; Path=\/; HttpOnly; SameSite=Lax$/),
    ]);
    expect((await visitor.get('/', { accept: 'text/html' })).status).toBe(200);
    expect((await visitor.get('/queues/api/queues')).status).toBe(200);
  });

  test('the session cookie is found among other cookies of the host, even malformed ones', async () => {
    const { board, visitor } = await arrive();
    const [session] = (await visitor.signIn()).headers.getSetCookie()[0]!.split(';');
    const statusWith = async (cookie: string) =>
      (await createVisitor(board).get('/queues/api/queues', { cookie })).status;
    for (const cookie of [`a=1; ${session}; b=2`, `__proto__=c;;=; %; ${session}`, `x="%zz"; ${session};`])
      expect([cookie, await statusWith(cookie)]).toEqual([cookie, 200]);
    for (const cookie of [`x${session}`, session!.toUpperCase(), `a="${session}"`])
      expect([cookie, await statusWith(cookie)]).toEqual([cookie, 401]);
  });

  test('a sign-in does not adopt a session id that was set in the browser before', async () => {
    const { visitor } = await arrive();
    const chosen = `penstock_board=${'A'.repeat(43)}`;
    const answer = await visitor.send('POST', '/sign-in', {
      body: new URLSearchParams({ user: account.user, password: account.password }),
      headers: { cookie: chosen },
    });
    expect(answer.status).toBe(303);
    expect(answer.headers.getSetCookie()[0]).not.toContain(chosen);
    expect((await visitor.get('/queues/api/queues', { cookie: chosen })).status).toBe(401);
  });

  test('a request cannot choose the target of a redirect', async () => {
    const { visitor } = await arrive();
    const elsewhere = 'https://elsewhere.example/';
    const sent = async (path: string, headers: Record<string, string> = {}) =>
      (await visitor.get(path, { accept: 'text/html', ...headers })).headers.get('location');
    for (const path of [
      '//elsewhere.example/x',
      '/%5Celsewhere.example',
      `/?next=${elsewhere}`,
      `/${elsewhere}`,
    ])
      expect(await sent(path), path).toBe('/sign-in');
    expect(await sent('/', { 'x-forwarded-host': 'elsewhere.example', referer: elsewhere })).toBe('/sign-in');
    const { user, password } = account;
    const answer = await visitor.send('POST', `/sign-in?next=${elsewhere}`, {
      body: new URLSearchParams({ user, password, next: elsewhere, redirect: elsewhere }),
    });
    expect(answer.headers.get('location')).toBe('/home');
  });

  test('a sign-in returns once to the requested page, and to no other host', async () => {
    const { visitor } = await arrive();
    const { user, password } = account;
    const askFor = async (path: string) => {
      const answer = await visitor.get(path, { accept: 'text/html' });
      return answer.headers.getSetCookie()[0]?.split(';')[0] ?? '';
    };
    const signIn = async (cookie: string) => {
      const answer = await visitor.send('POST', '/sign-in', {
        ...{ body: new URLSearchParams({ user, password }), headers: { cookie } },
      });
      const cleared = answer.headers.getSetCookie().some((one) => one.startsWith('penstock_board_target=;'));
      return [answer.headers.get('location'), cleared];
    };
    const kept = await askFor('/users?q=ada&workspace=shop');
    expect(await signIn(kept)).toEqual(['/users?q=ada&workspace=shop', true]);
    for (const path of ['/', '/home', '/sign-out', '/events'])
      expect([path, await askFor(path)]).toEqual([path, '']);
    for (const made of [
      '//elsewhere.example',
      '/\\elsewhere.example',
      'https://elsewhere.example',
      '/sign-out',
    ])
      expect(await signIn(`penstock_board_target=${encodeURIComponent(made)}`)).toEqual(['/home', true]);
  });

  test('with a proxy that terminates TLS, the session cookie is sent over https only', async () => {
    const { board, visitor } = await arrive();
    const answer = await visitor.send('POST', '/sign-in', {
      body: new URLSearchParams({ user: account.user, password: account.password }),
      headers: { origin: board.url.replace('http:', 'https:') },
    });
    expect(answer.headers.getSetCookie()).toEqual([expect.stringMatching(/; Secure;/)]);
  });

  test('the form keeps the user name of a failed attempt, escaped', async () => {
    const { visitor } = await arrive();
    const page = await (await visitor.signIn('"><script>alert(1)</script>', 'wrong')).text();
    expect(page).toContain('value="&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;"');
    expect(page).not.toContain('<script>');
  });

  test('the sign-out page shows the signed-in user', async () => {
    const { visitor } = await arrive();
    await visitor.signIn();
    const page = await (await visitor.get('/sign-out', { accept: 'text/html' })).text();
    expect(page).toContain('signed in as <strong>admin</strong>.');
  });

  test('a wrong user, a wrong password, an invalid form and a made-up cookie are rejected', async () => {
    const { visitor } = await arrive();
    expect((await visitor.signIn('admin', 'wrong')).status).toBe(401);
    expect((await visitor.signIn('someone', account.password)).status).toBe(401);
    expect((await visitor.send('POST', '/sign-in', { body: 'user' })).status).toBe(401);
    expect(
      (
        await visitor.send('POST', '/sign-in', {
          body: new Blob(['x'.repeat(5000)]),
          headers: { 'content-type': 'application/x-www-form-urlencoded' },
        })
      ).status,
    ).toBe(413);
    const cookie = `penstock_board=${'x'.repeat(43)}`;
    expect((await visitor.get('/queues/api/queues', { cookie })).status).toBe(401);
  });

  test.each([
    ['gzip', gzipSync],
    ['deflate', deflateSync],
    ['br', brotliCompressSync],
  ])('a request body compressed with %s gets 415', async (encoding, pack) => {
    const { visitor } = await arrive();
    const form = new URLSearchParams({ user: account.user, password: account.password }).toString();
    for (const path of ['/sign-in', '/invitation']) {
      const answer = await visitor.send('POST', path, {
        body: new Blob([pack(form)]),
        headers: { 'content-type': 'application/x-www-form-urlencoded', 'content-encoding': encoding },
      });
      expect(answer.status).toBe(415);
    }
    await visitor.signIn();
    const signedIn = await visitor.send('POST', '/queues/api/queues', {
      body: new Blob([pack('{}')]),
      headers: { 'content-type': 'application/json', 'content-encoding': encoding },
    });
    expect(signedIn.status).toBe(415);
  });

  test('after five wrong passwords in a row, even the right one has to wait', async () => {
    const { visitor } = await arrive();
    const signedIn = createVisitor((await arrive()).board);
    await signedIn.signIn();
    for (let attempt = 0; attempt < 5; attempt++) {
      expect((await visitor.signIn('admin', 'guess')).status).toBe(401);
    }
    const answer = await visitor.signIn();
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([429, '1']);
    expect(answer.headers.getSetCookie()).toEqual([]);
    expect((await signedIn.get('/queues/api/queues')).status).toBe(200);
  });

  test('signing out ends the session, even for a copy of its cookie', async () => {
    const { visitor } = await arrive();
    await visitor.signIn();
    const page = await visitor.get('/sign-out', { accept: 'text/html' });
    expect(await page.text()).toContain('action="/sign-out"');
    const answer = await visitor.signOut();
    expect([answer.status, answer.headers.get('location')]).toEqual([303, '/sign-in']);
    expect(answer.headers.getSetCookie()[0]).toMatch(/^penstock_board=; .*Expires=Thu, 01 Jan 1970/);
    expect((await visitor.get('/queues/api/queues')).status).toBe(401);
  });

  test.each([
    ['another site', { origin: 'https://elsewhere.example', 'sec-fetch-site': 'cross-site' }],
    ['another port of this host', { origin: 'http://127.0.0.1:9', 'sec-fetch-site': 'same-site' }],
    ['a page without an origin', { origin: 'null', 'sec-fetch-site': 'same-origin' }],
    ['an empty origin', { origin: '', 'sec-fetch-site': 'none' }],
  ])('a change sent from %s is rejected', async (_, headers) => {
    const { visitor } = await arrive();
    await visitor.signIn();
    expect((await visitor.put('/queues/api/queues/dead-letters/some/retry', headers)).status).toBe(403);
    expect((await visitor.send('POST', '/sign-out', { headers })).status).toBe(403);
    expect((await visitor.get('/queues/api/queues')).status).toBe(200);
  });

  test('pages forbid framing and resources from other hosts', async () => {
    const { visitor } = await arrive();
    const headers = (await visitor.get('/sign-in', { accept: 'text/html' })).headers;
    expect(headers.get('content-security-policy')).toMatch(/^default-src 'none';.*frame-ancestors 'none'/);
    expect(headers.get('x-content-type-options')).toBe('nosniff');
    expect(headers.get('strict-transport-security')).toBeNull();
    expect(headers.get('x-powered-by')).toBeNull();
    await visitor.signIn();
    const answer = await visitor.get('/queues/api/queues');
    expect(answer.headers.get('cache-control')).toBe('no-store');
    expect(answer.headers.get('x-powered-by')).toBeNull();
  });
});

describe('time limits and browser names', () => {
  let now = 0;

  const client = { address: '127.0.0.1', agent: 'a program' };

  test('a session of BOARD_USER ends after twelve hours', () => {
    const sessions = createOperatorSessions(() => now);
    const secret = sessions.open(client);
    now += 12 * 3_600_000 - 1;
    expect(sessions.find(secret, client)).toBeDefined();
    now += 1;
    expect(sessions.list()).toEqual([]);
    expect(sessions.find(secret, client)).toBeUndefined();
  });

  test('the 101st session of BOARD_USER ends the oldest', () => {
    const sessions = createOperatorSessions(() => now);
    const secrets = Array.from({ length: 101 }, () => sessions.open(client));
    const isOpen = (secret: string) => sessions.find(secret, client) !== undefined;
    expect(secrets.map(isOpen)).toEqual([false, ...Array.from({ length: 100 }, () => true)]);
  });

  test.each([
    ['Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0', 'Firefox 128 on Linux'],
    [
      'Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 Mobile/15E148 Safari/604.1',
      'Safari 17 on iOS',
    ],
    [
      'Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/126.0.0.0 Safari/537.36 Edg/126.0',
      'Edge 126 on Windows',
    ],
    ['<script>alert(1)</script>', 'a program'],
    [undefined, 'a program'],
  ])('the user agent %s is shown as a short name', (given, shownName) => {
    expect(browserOf(given)).toBe(shownName);
  });

  test('each wrong password from the fifth on doubles the wait, up to a minute', () => {
    const lockout = createLockout(() => now);
    const waits = Array.from({ length: 14 }, () => {
      now += 60_000;
      lockout.failed();
      return lockout.secondsLeft();
    });
    expect(waits).toEqual([0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60]);
    lockout.succeeded();
    now += 60_000;
    lockout.failed();
    expect(lockout.secondsLeft()).toBe(0);
  });

  test('a wait starts after the password comparison, however long it took', () => {
    const lockout = createLockout(() => now);
    for (let failure = 0; failure < 5; failure++) lockout.failed();
    now += 5000;
    expect(lockout.secondsLeft()).toBe(0);
    lockout.answered();
    expect(lockout.secondsLeft()).toBe(1);
  });
});
