import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createScimToken, ORIGIN } from '../setup/access.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createScene, ERROR, type Provider, type Scene } from './scene.ts';

let scene: Scene;
let provider: Provider;
beforeAll(async () => {
  scene = await createScene({ LOG_LEVEL: 'info' }, 1);
  provider = scene.provider;
});
afterAll(() => scene.stop());

const unauthorized = {
  status: 401,
  body: { schemas: [ERROR], detail: 'Unauthorized', status: 401 },
};

const otherOrigin = {
  status: 401,
  body: {
    ...unauthorized.body,
    detail:
      "Unauthorized: the token is valid, but 'X-Request-Origin' is not the origin that it was issued for",
  },
};

function list(key: string, origin: string | undefined = ORIGIN) {
  const headers = origin === undefined ? {} : { 'x-request-origin': origin };
  return send(scene.port, { method: 'GET', path: '/scim/v2/Users', key, headers });
}

describe('a SCIM token', () => {
  test('needs its exact origin in X-Request-Origin: a missing or different one is 401', async () => {
    expect((await list(provider.token)).status).toBe(200);
    const without = await send(scene.port, { method: 'GET', path: '/scim/v2/Users', key: provider.token });
    expect(without).toMatchObject(otherOrigin);
    // RFC 7644 §2: the response names the scheme of authentication.
    expect(without.headers.get('www-authenticate')).toBe('Bearer');
    for (const origin of ['https://other.example', `${ORIGIN}/`, ORIGIN.toUpperCase(), ''])
      expect(await list(provider.token, origin)).toMatchObject(otherOrigin);
  });

  test('that is wrong or not allowed here gets a 401 that does not mention the origin', async () => {
    const elsewhere = await createScimToken(scene.pool, provider.companyId, { allowlist: ['10.0.0.0/8'] });
    for (const token of [`${provider.token.slice(0, -1)}-`, elsewhere])
      expect(await list(token, 'https://other.example')).toMatchObject(unauthorized);
  });

  test('is rejected from an address outside its allowlist: 401', async () => {
    const token = (allowlist: string[]) => createScimToken(scene.pool, provider.companyId, { allowlist });
    expect(await list(await token(['10.0.0.0/8']))).toMatchObject(unauthorized);
    expect((await list(await token(['127.0.0.0/8', '::1']))).status).toBe(200);
  });

  test('is rejected from the moment it is revoked: 401', async () => {
    const token = await createScimToken(scene.pool, provider.companyId);
    expect((await list(token)).status).toBe(200);
    await scene.pool.query('update scim_tokens set revoked_at = now() where identifier = $1', [
      token.slice(0, 11),
    ]);
    expect(await list(token)).toMatchObject(unauthorized);
  });

  test('has the time of its last use', async () => {
    const token = await createScimToken(scene.pool, provider.companyId);
    await list(token);
    const { rows } = await scene.pool.query('select last_seen_at from scim_tokens where identifier = $1', [
      token.slice(0, 11),
    ]);
    expect(Date.now() - rows[0].last_seen_at.getTime()).toBeLessThan(10_000);
  });

  test('opens no endpoint of an API key, and an API key opens no SCIM endpoint', async () => {
    const headers = { 'x-request-origin': ORIGIN };
    const path = '/users/export/ids';
    const json = { external_ids: ['ada'] };
    expect((await send(scene.port, { path, key: provider.token, headers, json })).status).toBe(401);
    expect(await list(provider.workspace.key)).toMatchObject(unauthorized);
  });
});

test('5,000 requests a day per company are shared by its tokens and all methods', async () => {
  const other = await scene.createProvider('limited');
  const second = await createScimToken(scene.pool, other.companyId);
  const remaining = async (answer: Promise<{ headers: Headers }>) =>
    Number((await answer).headers.get('x-ratelimit-remaining'));
  const first = await other.call('GET', '/Users');
  expect(first.headers.get('x-ratelimit-limit')).toBe('5000');
  // One request comes back within 17 seconds, a 5,000th of a day.
  const wait = Number(first.headers.get('x-ratelimit-reset')) - Date.now() / 1000;
  expect(wait).toBeGreaterThan(1);
  expect(wait).toBeLessThan(20);
  const left = await remaining(Promise.resolve(first));
  expect(await remaining(other.call('GET', '/Schemas'))).toBe(left - 1);
  expect(await remaining(other.call('DELETE', '/Users/nobody'))).toBe(left - 2);
  expect(await remaining(list(second))).toBe(left - 3);
  const third = await scene.createProvider('unlimited');
  expect(await remaining(third.call('GET', '/Users'))).toBe(left);
});

test('a limit of a workspace for scim applies to its company', async () => {
  const other = await scene.createProvider('narrow');
  await scene.pool.query("insert into rate_limits values ($1, 'scim', 2, 3600)", [other.workspace.id]);
  const statuses = [];
  for (let request = 0; request < 3; request++) statuses.push((await other.call('GET', '/Users')).status);
  expect(statuses).toEqual([200, 200, 429]);
});

test("an API key reads and writes its own workspace's users only", async () => {
  const other = await scene.createProvider('elsewhere');
  const track = (key: string, first_name: string) =>
    send(scene.port, {
      path: '/users/track',
      key,
      json: { attributes: [{ external_id: 'ada', first_name }] },
    });
  const read = async (key: string) =>
    (await send(scene.port, { path: '/users/export/ids', key, json: { external_ids: ['ada'] } })).body;
  await track(provider.workspace.key, 'Ada');
  await waitUntil(async () => (await read(provider.workspace.key)).users.length === 1, { what: 'the user' });
  expect(await read(other.workspace.key)).toMatchObject({ users: [], invalid_user_ids: ['ada'] });
  await track(other.workspace.key, 'Another');
  await waitUntil(async () => (await read(other.workspace.key)).users.length === 1, {
    what: 'the other user',
  });
  expect((await read(provider.workspace.key)).users[0].first_name).toBe('Ada');
});

test('the log names the company and no account, token or origin', async () => {
  const { id } = await provider.create({ userName: 'secret.person@example.com' });
  await provider.call('GET', '/Users?filter=userName%20eq%20%22secret.person@example.com%22');
  const { headers } = await provider.call('GET', `/Users/${id}`);
  const requestId = headers.get('x-request-id');
  const edge = scene.fleet.edges[0]!;
  const line = await waitUntil(() => edge.log.find(({ request_id }) => request_id === requestId), {
    what: 'the log line',
  });
  expect(line).toMatchObject({ operation: 'scim.users.get', company_id: provider.companyId });
  expect(line).not.toHaveProperty('workspace_id');
  const all = JSON.stringify(edge.log);
  for (const secret of ['secret.person', provider.token, ORIGIN]) expect(all).not.toContain(secret);
  // An account has the id of the request that created it, and only that request's line contains it.
  const others = edge.log.filter((other) => other.request_id !== id);
  expect(JSON.stringify(others)).not.toContain(id);
});
