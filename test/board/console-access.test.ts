import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAuthenticator } from '../../src/edge/authenticate.ts';
import { permissionPresets } from '../../src/schemas/permissions.ts';
import { addKeyUsage } from '../../src/store/api-keys.ts';
import { searchAudit } from '../../src/store/audit-list.ts';
import { findApiKeys, hashApiKey } from '../../src/store/credentials.ts';
import { beginSession, forgetSessions, listSessions } from '../../src/store/sessions.ts';
import { createCompany } from '../setup/access.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createVisitor } from './browser-session.ts';
import { type Console, openConsole, page, post } from './console-scene.ts';
import { log } from './installation.ts';
import { DEFAULT_COMPANY, PASSWORD, type Visitor } from './people.ts';

let scene: Console;
beforeAll(async () => {
  scene = await openConsole();
});
afterAll(() => scene.installation.stop());

const pool = () => scene.installation.database.pool;
const actionsAbout = async (subject: string) =>
  (await searchAudit(pool(), { subject, limit: 50 })).rows.map(({ action }) => action).reverse();

describe('an API key', () => {
  const make = (visitor: Visitor, fields: Record<string, string>) =>
    post(visitor, '/keys', { workspace: scene.shop, name: 'till 4', permissions: 'users.track', ...fields });

  test('a new API key is shown once; the list and the audit do not contain its secret', async () => {
    const answer = await make(scene.operator, { ip_allowlist: '10.0.0.0/8, 192.0.2.7' });
    const text = await answer.text();
    const [secret = ''] = /pk_[\w-]{43}/.exec(text) ?? [];
    const [, id = ''] = /href="\/keys\/([0-9a-f-]{36})"/.exec(text) ?? [];
    expect([answer.status, answer.headers.get('cache-control')]).toEqual([200, 'no-store']);
    expect((await findApiKeys(pool(), [hashApiKey(secret)]))[0]).toMatchObject({
      ...{
        id,
        workspaceId: scene.shop,
        permissions: ['users.track'],
        ipAllowlist: ['10.0.0.0/8', '192.0.2.7'],
      },
    });
    for (const path of ['/keys', `/keys/${id}`, '/audit', '/audit.csv'])
      expect([path, (await page(scene.operator, path)).text.includes(secret)]).toEqual([path, false]);
    expect(await actionsAbout(id)).toEqual(['api_keys.create']);
  });

  test('an API key has the permissions of its preset and those chosen in addition', async () => {
    const { text: form } = await page(scene.operator, '/keys');
    expect(form).toContain('<option value="read-only">read-only: reads single users');
    expect(form).toMatch(/<code>users.merge<\/code> <span class="hint">Merge two users<\/span>/);
    const answer = await make(scene.operator, { preset: 'import', permissions: 'users.merge' });
    const [secret = ''] = /pk_[\w-]{43}/.exec(await answer.text()) ?? [];
    const [key] = await findApiKeys(pool(), [hashApiKey(secret)]);
    expect(key!.permissions.toSorted()).toEqual(
      [...permissionPresets.import.permissions, 'users.merge'].toSorted(),
    );
  });

  test('a form without a preset or a permission is rejected with an error at the permissions', async () => {
    const answer = await make(scene.operator, { permissions: '', name: 'till 5' });
    expect(answer.status).toBe(400);
    const text = await answer.text();
    expect(text).toMatch(
      /<legend>Permissions<\/legend><span [^>]+><strong [^>]+>At least one permission or a preset is required\./,
    );
    expect(text).toContain('value="till 5"');
  });

  test.each([
    ['an unknown preset', { preset: 'everything' }],
    ['an empty name', { name: ' ' }],
    ['a long name', { name: 'x'.repeat(256) }],
    ['an unknown permission', { permissions: 'everything' }],
    ['an invalid subnet', { ip_allowlist: '10.0.0.0/99' }],
    ['101 addresses', { ip_allowlist: Array.from({ length: 101 }, (_, n) => `10.0.0.${n}`).join(',') }],
    ['an unknown workspace', { workspace: uuidv7() }],
  ])('an API key with %s is rejected', async (_, fields) => {
    const before = await scene.query('select count(*) from api_keys');
    expect((await make(scene.operator, fields)).status).toBe(400);
    expect(await scene.query('select count(*) from api_keys')).toEqual(before);
  });

  test('an API key cannot be created or revoked with a right in another workspace only', async () => {
    const appGroups = [{ workspace: scene.school, permissions: ['edit_api_keys'], teams: [] }];
    const { visitor } = await scene.people.arrive([], { appGroups });
    expect((await make(visitor, {})).status).toBe(400);
    expect((await post(visitor, `/keys/${scene.key}`, { confirm: 'pk_' })).status).toBe(404);
  });

  test('an API key is revoked permanently after its prefix is typed', async () => {
    const text = await (await make(scene.operator, {})).text();
    const [secret = ''] = /pk_[\w-]{43}/.exec(text) ?? [];
    const [, id = ''] = /href="\/keys\/([0-9a-f-]{36})"/.exec(text) ?? [];
    expect((await post(scene.operator, `/keys/${id}`, { confirm: 'yes' })).status).toBe(400);
    expect((await findApiKeys(pool(), [hashApiKey(secret)]))[0]).toBeDefined();
    for (let press = 0; press < 2; press++)
      expect((await post(scene.operator, `/keys/${id}`, { confirm: secret.slice(0, 8) })).status).toBe(303);
    expect((await findApiKeys(pool(), [hashApiKey(secret)]))[0]).toBeUndefined();
    expect(await actionsAbout(id)).toEqual(['api_keys.create', 'api_keys.revoke']);
    expect((await page(scene.operator, `/keys/${id}`)).text).not.toContain('Revoke key');
  });

  test('the page of an API key shows its requests by day and bucket', async () => {
    const { secret, key } = await (async () => {
      const text = await (await make(scene.operator, { name: '<b>till</b>' })).text();
      const [first = ''] = /pk_[\w-]{43}/.exec(text) ?? [];
      return { secret: first, key: (await findApiKeys(pool(), [hashApiKey(first)]))[0]! };
    })();
    for (let edge = 0; edge < 2; edge++) {
      const authenticator = createAuthenticator(pool(), 1000, log);
      const authenticated = await authenticator.authenticate(`Bearer ${secret}`, '127.0.0.1', Date.now());
      for (let n = 0; n < 600; n++) authenticator.count(authenticated, 'users.track', n % 100 > 0);
      authenticator.count(authenticated, 'default', true);
      await authenticator.stop();
    }
    const { text } = await page(scene.operator, `/keys/${key.id}`);
    expect(text.replace(/<[^>]+>/g, ' ').replace(/\s+/g, ' ')).toMatch(/users\.track 1,200 12 /);
    expect(text).toMatch(/<svg [^>]*role="img" aria-label="Requests by day, from [^"]+: 1,202"/);
    expect(text).toContain('&lt;b&gt;till&lt;/b&gt;');
    expect(text).not.toContain('<b>till');
    // Usage that is recorded for another workspace is not shown.
    await addKeyUsage(pool(), [
      { workspaceId: scene.school, apiKeyId: key.id, bucket: 'requests', requests: 5, refused: 0 },
    ]);
    expect((await page(scene.operator, `/keys/${key.id}`)).text).not.toContain('<code>requests</code>');
  });
});

describe('sessions', () => {
  const isIn = async (visitor: Visitor) => (await visitor.get('/queues/api/queues')).status === 200;
  const idsOn = async (visitor: Visitor, path = '/sessions') =>
    [...(await page(visitor, path)).text.matchAll(/name="id" value="([0-9a-f-]{36})"/g)].map(([, id]) => id!);

  test('users see their own sessions and can end them, one or all others', async () => {
    const { visitor, email, id } = await scene.people.arrive();
    const second = createVisitor(scene.board);
    await second.signIn(email, PASSWORD);
    const third = createVisitor(scene.board);
    await third.signIn(email, PASSWORD);
    const others = await idsOn(visitor);
    expect(others).toHaveLength(2);
    await post(visitor, '/sessions', { action: 'end', id: others[0]! });
    expect(await Promise.all([visitor, second, third].map(isIn))).toEqual([true, true, false]);
    await post(visitor, '/sessions', { action: 'end_others' });
    expect(await Promise.all([visitor, second, third].map(isIn))).toEqual([true, false, false]);
    expect((await actionsAbout(id)).filter((one) => one === 'sessions.end')).toHaveLength(2);
  });

  test('only administrators of the company can see and end the sessions of others', async () => {
    const ada = await scene.people.arrive();
    const grace = await scene.people.arrive([], {
      appGroups: [{ workspace: scene.shop, permissions: ['admin'], teams: [] }],
    });
    const company = await createCompany(pool() as never, `company-${uuidv7()}`);
    const stranger = await scene.people.arrive(['admin'], { company });
    const [session] = await listSessions(pool(), { accountId: ada.id }, { limit: 1 });
    for (const visitor of [grace.visitor, stranger.visitor]) {
      expect(await idsOn(visitor, '/sessions?of=all')).not.toContain(session!.id);
      const answer = await post(visitor, '/sessions', { action: 'end', id: session!.id });
      expect(answer.headers.get('location')).toContain('nothing_ended');
    }
    expect(await isIn(ada.visitor)).toBe(true);
    const admin = await scene.people.arrive(['admin']);
    expect(await idsOn(admin.visitor, '/sessions?of=all')).toContain(session!.id);
    const back = 'https://elsewhere.example/';
    const answer = await post(admin.visitor, '/sessions', { action: 'end', id: session!.id, back });
    expect(answer.headers.get('location')).toBe('/sessions?done=ended');
    expect(await isIn(ada.visitor)).toBe(false);
  });

  test('only BOARD_USER can end sessions of BOARD_USER', async () => {
    const other = createVisitor(scene.board);
    await other.signIn();
    const [id] = await idsOn(scene.operator);
    const admin = await scene.people.arrive(['admin']);
    await post(admin.visitor, '/sessions', { action: 'end', id: id! });
    expect(await isIn(other)).toBe(true);
    await post(scene.operator, '/sessions', { action: 'end', id: id! });
    expect([await isIn(other), await isIn(scene.operator)]).toEqual([false, true]);
  });

  test('sessions survive a restart of the console, and their secrets are not stored', async () => {
    const { visitor } = await scene.people.arrive();
    const [row] = await scene.query(
      'select to_jsonb(sessions)::text as stored from sessions order by id desc',
    );
    const again = await scene.installation.startBoard();
    const cookie = visitor.cookie();
    expect((await createVisitor(again).get('/queues/api/queues', { cookie })).status).toBe(200);
    expect((row as { stored: string }).stored).not.toContain(cookie.split('=')[1]);
  });

  test('a sign-in ends the previous session of the browser, whoever it belonged to', async () => {
    const [ada, grace] = [await scene.people.arrive(), await scene.people.arrive()];
    const statusWith = async (cookie: string) =>
      (await createVisitor(scene.board).get('/queues/api/queues', { cookie })).status;
    const browser = createVisitor(scene.board);
    const cookies: string[] = [];
    for (const who of [ada.email, grace.email, undefined, undefined, ada.email]) {
      await (who === undefined ? browser.signIn() : browser.signIn(who, PASSWORD));
      cookies.push(browser.cookie());
    }
    // A sign-in as BOARD_USER does not wait until the previous session has ended.
    await waitUntil(async () => (await statusWith(cookies[1]!)) === 401, { what: 'the end of the second' });
    expect(await Promise.all(cookies.map(statusWith))).toEqual([401, 401, 401, 401, 200]);
    expect(await isIn(ada.visitor)).toBe(true);
    expect((await actionsAbout(grace.id)).slice(-2)).toEqual(['sessions.begin', 'sessions.end']);
  });

  const session = (accountId: string, endsAt = new Date(Date.now() + 60_000)) => ({
    ...{ accountId, companyId: DEFAULT_COMPANY, epoch: 0, endsAt, address: undefined, agent: 'a program' },
    secretHash: hashApiKey(uuidv7()),
  });

  const begin = (...given: Parameters<typeof session>) =>
    scene.installation.database.prisma.$transaction((tx) => beginSession(tx, session(...given)));

  test('a user has at most 100 sessions, and further sign-ins end no session of another user', async () => {
    const [reader, neighbour] = [await scene.people.arrive(), await scene.people.arrive()];
    for (let n = 0; n < 120; n++) await begin(reader.id);
    expect(await listSessions(pool(), { accountId: reader.id }, { limit: 200 })).toHaveLength(100);
    expect(await isIn(neighbour.visitor)).toBe(true);
    expect(await isIn(reader.visitor)).toBe(false);
  });

  test('a session ends after twelve hours and is deleted', async () => {
    const { id, visitor } = await scene.people.arrive();
    const [begun] = await listSessions(pool(), { accountId: id }, { limit: 1 });
    expect(begun!.endsAt.getTime() - begun!.beganAt.getTime()).toBeCloseTo(12 * 3_600_000, -4);
    await scene.query("update sessions set ends_at = now() - interval '1 second' where id = $1", begun!.id);
    expect(await isIn(visitor)).toBe(false);
    await forgetSessions(pool());
    expect(await scene.query('select from sessions where id = $1', begun!.id)).toEqual([]);
  });

  test('an account that was signed out or deactivated meanwhile gets no session', async () => {
    const { id } = await scene.people.arrive();
    await scene.query('update accounts set session_epoch = 7 where id = $1', id);
    expect(await begin(id)).toBeUndefined();
    await scene.query('update accounts set session_epoch = 0, active = false where id = $1', id);
    expect(await begin(id)).toBeUndefined();
  });
});
