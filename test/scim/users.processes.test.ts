import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createAccount } from '../setup/access.ts';
import { accountOf, createScene, type Provider, refusal, type Scene } from './scene.ts';

const NOBODY = '019c13ec-a2e2-7b61-8f0c-000000000000';

let scene: Scene;
let provider: Provider;
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
});
afterAll(() => scene.stop());

describe('GET /scim/v2/Users/{id}', () => {
  test('RFC 7644 §3.4.1: 200 with the account, its version as ETag', async () => {
    const created = await provider.create();
    const { status, headers, body } = await provider.call('GET', `/Users/${created.id}`);
    expect({ status, body }).toEqual({ status: 200, body: created });
    expect(headers.get('etag')).toBe(created.meta.version);
    expect(headers.get('content-type')).toBe('application/scim+json');
  });

  test('HEAD has the headers of GET and no body', async () => {
    const { id } = await provider.create();
    const { status, headers, body } = await provider.call('HEAD', `/Users/${id}`);
    expect({ status, body, etag: headers.get('etag') }).toEqual({
      status: 200,
      body: undefined,
      etag: 'W/"1"',
    });
  });

  test.each([NOBODY, 'nobody', '%00', '..%2f'])('an unknown id is 404: %s', async (id) => {
    expect(await provider.call('GET', `/Users/${id}`)).toMatchObject(refusal(404, 'Resource not found'));
  });

  test('RFC 7644 §3.14: If-None-Match with the current version is 304', async () => {
    const { id } = await provider.create();
    const send = (tag: string) => provider.call('GET', `/Users/${id}`, undefined, { 'if-none-match': tag });
    expect(await send('W/"1"')).toMatchObject({ status: 304, body: undefined });
    expect(await send('W/"2"')).toMatchObject({ status: 200 });
  });

  test('lastSignInAt is the time of the last sign-in in UTC', async () => {
    const { id } = await provider.create();
    await scene.pool.query("update accounts set last_sign_in_at = '2026-02-03T04:05:06Z' where id = $1", [
      id,
    ]);
    expect((await provider.call('GET', `/Users/${id}`)).body.lastSignInAt).toBe('2026-02-03T04:05:06.000Z');
  });
});

describe('PUT /scim/v2/Users/{id}', () => {
  const { userName: _, ...given } = accountOf('shop', {
    name: { givenName: 'Augusta', familyName: 'King' },
    department: 'finance',
    permissions: { appGroup: [] },
  });

  test('RFC 7644 §3.5.1: 200, and all writable attributes are replaced', async () => {
    const created = await provider.create({ externalId: 'x' });
    const { status, headers, body } = await provider.call('PUT', `/Users/${created.id}`, given);
    expect(status).toBe(200);
    const { externalId: _gone, ...kept } = created;
    expect(body).toEqual({
      ...kept,
      ...given,
      permissions: { companyPermissions: [], appGroup: [] },
      meta: { ...created.meta, version: 'W/"2"', lastModified: expect.any(String) },
    });
    expect(body.meta.lastModified > created.meta.lastModified).toBe(true);
    expect(headers.get('etag')).toBe('W/"2"');
    expect((await provider.call('GET', `/Users/${created.id}`)).body).toEqual(body);
  });

  test('an account that was read can be sent back unchanged', async () => {
    const created = await provider.create();
    const { status, body } = await provider.call('PUT', `/Users/${created.id}`, created);
    expect(status).toBe(200);
    expect({ ...body, meta: null }).toEqual({ ...created, meta: null });
  });

  test('RFC 7644 §3.5.1: userName cannot be changed; the current one may be sent in any case', async () => {
    const { id, userName } = await provider.create();
    const put = (name: string) => provider.call('PUT', `/Users/${id}`, { ...given, userName: name });
    expect((await put(userName.toUpperCase())).body.userName).toBe(userName);
    expect(await put('other@example.com')).toMatchObject(
      refusal(400, "'userName' cannot be changed", 'mutability'),
    );
  });

  test('an inactive account stays so if active is absent', async () => {
    const { id } = await provider.create({ active: false });
    expect((await provider.call('PUT', `/Users/${id}`, given)).body.active).toBe(false);
    expect((await provider.call('PUT', `/Users/${id}`, { ...given, active: true })).body.active).toBe(true);
  });

  test('an unknown id is 404', async () => {
    expect(await provider.call('PUT', `/Users/${NOBODY}`, given)).toMatchObject(
      refusal(404, 'User not found'),
    );
  });

  test('RFC 7644 §3.14: If-Match with another version is 412, and the account is unchanged', async () => {
    const { id } = await provider.create();
    const put = (tag: string) => provider.call('PUT', `/Users/${id}`, given, { 'if-match': tag });
    expect(await put('W/"7"')).toMatchObject({ status: 412 });
    expect((await provider.call('GET', `/Users/${id}`)).body.meta.version).toBe('W/"1"');
    expect((await put('W/"1"')).body.meta.version).toBe('W/"2"');
    // An identical PUT keeps the version.
    expect(await put('*')).toMatchObject({ status: 200, body: { meta: { version: 'W/"2"' } } });
    expect(await provider.call('DELETE', `/Users/${id}`, undefined, { 'if-match': 'W/"1"' })).toMatchObject({
      status: 412,
    });
  });

  test('one of ten simultaneous changes of a version is 200, the others 412', async () => {
    const { id } = await provider.create();
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => provider.call('PUT', `/Users/${id}`, given, { 'if-match': 'W/"1"' })),
    );
    expect(answers.map(({ status }) => status).sort()).toEqual([200, ...Array(9).fill(412)]);
  });
});

describe('DELETE /scim/v2/Users/{id}', () => {
  test('RFC 7644 §3.6: 204 without a body; then it is gone, and its address is free', async () => {
    const { id, userName } = await provider.create();
    const { status, headers, body } = await provider.call('DELETE', `/Users/${id}`);
    expect({ status, body, type: headers.get('content-type') }).toEqual({
      status: 204,
      body: undefined,
      type: null,
    });
    expect(await provider.call('DELETE', `/Users/${id}`)).toMatchObject(refusal(404, 'User not found'));
    expect(await provider.call('GET', `/Users/${id}`)).toMatchObject({ status: 404 });
    expect((await provider.create({ userName })).id).not.toBe(id);
  });
});

test('RFC 7644 §3.12: every error below /scim/v2 is a SCIM error, whatever the request', async () => {
  for (const path of ['', '/', '/Groups', '/Users/a/b', '/%ff']) {
    const { status, headers, body } = await provider.call('GET', path);
    expect({ path, status, type: headers.get('content-type'), body }).toEqual({
      path,
      type: 'application/scim+json',
      ...refusal(404, 'Not Found'),
    });
  }
  expect(await provider.call('POST', '/Schemas', {})).toMatchObject(refusal(405, 'Method Not Allowed'));
});

test.each([
  ['§3.11', 'GET', '/Me'],
  ['§3.7', 'POST', '/Bulk'],
  ['§3.4.3', 'POST', '/.search'],
  ['§3.4.3', 'POST', '/Users/.search'],
])('RFC 7644 %s: %s %s is not supported and is 501', async (_, method, path) => {
  const answer = await provider.call(method, path, method === 'POST' ? {} : undefined);
  expect(answer).toMatchObject(refusal(501, 'Not Implemented'));
});

test('an account of another company is unknown for every method', async () => {
  const other = await scene.createProvider('school');
  const id = await createAccount(scene.pool, other.companyId, 'one@example.com');
  const { userName: _, ...body } = accountOf('shop');
  const statuses = [
    await provider.call('GET', `/Users/${id}`),
    await provider.call('PUT', `/Users/${id}`, body),
    await provider.patch(id, [{ op: 'replace', path: 'active', value: false }]),
    await provider.call('DELETE', `/Users/${id}`),
  ].map(({ status }) => status);
  expect(statuses).toEqual([404, 404, 404, 404]);
  const result = await provider.call('GET', '/Users?filter=userName%20eq%20%22one@example.com%22');
  expect(result.body).toMatchObject({ totalResults: 0, Resources: [] });
  const listed = (await provider.call('GET', '/Users')).body.Resources;
  expect(listed.map((one: { id: string }) => one.id)).not.toContain(id);
  expect((await other.call('GET', `/Users/${id}`)).body).toMatchObject({
    id,
    active: true,
    meta: { version: 'W/"1"' },
  });
  // The address is free in this company, although another company has an account with it.
  expect((await provider.create({ userName: 'one@example.com' })).userName).toBe('one@example.com');
});
