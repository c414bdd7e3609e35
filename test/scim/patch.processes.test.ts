import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { createScene, type Provider, type Scene, USER } from './scene.ts';

let scene: Scene;
let provider: Provider;
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
  // The name contains characters with a meaning in a path.
  await createWorkspace(scene.pool, 'EU: no. 1');
});
afterAll(() => scene.stop());

/** Creates an account and applies the operations. @returns the patched account */
async function patched(...operations: Json[]) {
  const { id } = await provider.create();
  const { status, body } = await provider.patch(id, operations);
  expect({ status, body }).toMatchObject({ status: 200 });
  expect((await provider.call('GET', `/Users/${id}`)).body).toEqual(body);
  expect(body.meta.version).toBe('W/"2"');
  return body;
}

describe('RFC 7644 §3.5.2: PATCH', () => {
  test('§3.5.2.3: replace of one attribute, with a path', async () => {
    expect((await patched({ op: 'replace', path: 'department', value: 'bi' })).department).toBe('bi');
  });

  test('§3.5.2.3: replace without a path applies the attributes of the value', async () => {
    const body = await patched({ op: 'replace', value: { department: 'pm', 'name.givenName': 'Augusta' } });
    expect(body).toMatchObject({
      department: 'pm',
      name: { givenName: 'Augusta', familyName: 'Lovelace' },
    });
  });

  test('§3.5.2.3: replace of a complex attribute keeps the members that it does not name', async () => {
    const body = await patched({ op: 'replace', path: 'name', value: { familyName: 'King' } });
    expect(body.name).toEqual({ givenName: 'Ada', familyName: 'King' });
  });

  test('names of attributes and operations are case-insensitive, and a path may have the URN', async () => {
    const body = await patched(
      { op: 'REPLACE', path: `${USER}:NAME.givenname`, value: 'Augusta' },
      { op: 'ADD', path: 'externalId', value: 'x' },
      { op: 'REMOVE', path: 'externalId' },
      { op: 'Add', value: { DEPARTMENT: 'bi', [`${USER}:name.familyName`]: 'King' } },
    );
    expect(body).toMatchObject({ name: { givenName: 'Augusta', familyName: 'King' }, department: 'bi' });
    expect(body).not.toHaveProperty('externalId');
  });

  test('a value without a path may be a list of one object', async () => {
    expect((await patched({ op: 'replace', value: [{ active: false }] })).active).toBe(false);
  });

  test('§3.5.2.2: remove with values removes the values that contain all given members', async () => {
    const { id } = await provider.create({
      emails: [
        { value: 'Ada@Work.example', type: 'work', primary: true },
        { value: 'ada@home.example', type: 'home' },
        { value: 'ada@other.example', type: 'other' },
      ],
    });
    const left = async (value: Json) =>
      (await provider.patch(id, [{ op: 'remove', path: 'emails', value }])).body.emails.map(
        ({ type }: { type: string }) => type,
      );
    expect(await left([{ value: 'ada@work.example', type: 'home' }])).toEqual(['work', 'home', 'other']);
    expect(await left([{ value: 'ada@work.example' }])).toEqual(['home', 'other']);
    expect(await left({ value: 'ada@home.example', type: 'home' })).toEqual(['other']);
    const group = { op: 'remove', path: 'permissions.appGroup', value: { appGroupName: 'shop' } };
    expect((await provider.patch(id, [group])).body.permissions.appGroup).toEqual([]);
  });

  test.each([false, 'False', 'false'])('active: %j deactivates', async (value) => {
    expect((await patched({ op: 'replace', path: 'active', value })).active).toBe(false);
    expect((await patched({ op: 'replace', value: { active: value } })).active).toBe(false);
  });

  test('§3.5.2.1: add to a list keeps existing values and adds no duplicates', async () => {
    const path = 'permissions.companyPermissions';
    const body = await patched(
      { op: 'add', path, value: ['admin'] },
      { op: 'add', path, value: 'admin' },
      { op: 'add', value: { externalId: 'hr-9' } },
    );
    expect(body.permissions.companyPermissions).toEqual(['manage_company_settings', 'admin']);
    expect(body.externalId).toBe('hr-9');
  });

  test('§3.5.2.1: add of a workspace', async () => {
    const value = { appGroupName: 'EU: no. 1', appGroupPermissions: ['admin'] };
    const body = await patched({ op: 'add', path: 'permissions.appGroup', value });
    expect(body.permissions.appGroup).toMatchObject([
      { appGroupName: 'shop', appGroupPermissions: ['basic_access'] },
      { appGroupName: 'EU: no. 1', appGroupPermissions: ['admin'] },
    ]);
  });

  test('§3.5.2.2: remove of an attribute, of values of a list, and of filtered values', async () => {
    const { id } = await provider.create({ externalId: 'x' });
    const { body } = await provider.patch(id, [
      { op: 'remove', path: 'externalId' },
      { op: 'remove', path: 'permissions.companyPermissions', value: ['manage_company_settings'] },
    ]);
    expect(body).not.toHaveProperty('externalId');
    expect(body.permissions.companyPermissions).toEqual([]);
    const emptied = await provider.patch(id, [
      { op: 'remove', path: 'permissions.appGroup[appGroupName eq "shop"]' },
      { op: 'add', path: 'permissions.appGroup', value: [] },
    ]);
    expect(emptied.body.permissions.appGroup).toEqual([]);
  });

  test('§3.5.2: a path with a filter changes the selected values', async () => {
    const value = { appGroupName: 'EU: no. 1', appGroupPermissions: ['basic_access'] };
    const path = (filter: string) => `permissions.appGroup[${filter}].appGroupPermissions`;
    const body = await patched(
      { op: 'add', path: 'permissions.appGroup', value },
      { op: 'replace', path: path('appGroupName eq "shop"'), value: ['admin'] },
      { op: 'add', path: path('appGroupName eq "EU: no. 1"'), value: ['view_pii'] },
      { op: 'replace', path: path(`appGroupId eq "${provider.workspace.id}"`), value: ['view_pii'] },
    );
    expect(body.permissions.appGroup).toMatchObject([
      { appGroupName: 'shop', appGroupPermissions: ['view_pii'] },
      { appGroupName: 'EU: no. 1', appGroupPermissions: ['basic_access', 'view_pii'] },
    ]);
  });

  test('§3.5.2: a path may go through two filters, and through a list without one', async () => {
    await scene.pool.query(
      "insert into teams (id, workspace_id, name) values (gen_random_uuid(), $1, 'Rome')",
      [provider.workspace.id],
    );
    const team = { teamName: 'Rome', teamPermissions: ['basic_access'] };
    const body = await patched(
      { op: 'add', path: 'permissions.appGroup[appGroupName eq "shop"].team', value: [team] },
      {
        op: 'add',
        path: 'permissions.appGroup[appGroupName eq "shop"].team[teamName eq "Rome"].teamPermissions',
        value: 'admin',
      },
      { op: 'replace', path: 'permissions.appGroup.appGroupPermissions', value: ['view_pii'] },
    );
    expect(body.permissions.appGroup).toMatchObject([
      {
        appGroupName: 'shop',
        appGroupPermissions: ['view_pii'],
        team: [{ teamName: 'Rome', teamPermissions: ['basic_access', 'admin'] }],
      },
    ]);
  });

  test('a value without a path ignores read-only and unknown attributes', async () => {
    const body = await patched({
      op: 'replace',
      value: { id: 'other', meta: {}, lastSignInAt: 'now', nickName: 'x', department: 'bi' },
    });
    expect(body).toMatchObject({ department: 'bi', lastSignInAt: 'N/A' });
  });

  test('§3.5.2.1: a value that is already set changes neither version nor lastModified', async () => {
    const created = await provider.create({ externalId: 'hr-1' });
    const { status, headers, body } = await provider.patch(created.id, [
      { op: 'add', path: 'department', value: 'engineering' },
      { op: 'replace', value: { active: 'True', externalId: 'hr-1' } },
      { op: 'add', path: 'permissions.companyPermissions', value: ['manage_company_settings'] },
      { op: 'remove', path: 'permissions.appGroup[appGroupName eq "none"]' },
    ]);
    expect({ status, body }).toEqual({ status: 200, body: created });
    expect(headers.get('etag')).toBe('W/"1"');
  });

  test('either all operations take effect, or the account is unchanged', async () => {
    const created = await provider.create();
    const { status } = await provider.patch(created.id, [
      { op: 'replace', path: 'department', value: 'bi' },
      { op: 'replace', path: 'name.givenName', value: '' },
    ]);
    expect(status).toBe(400);
    expect((await provider.call('GET', `/Users/${created.id}`)).body).toEqual(created);
  });

  test.for<[string, Json[], string, string]>([
    [
      'a path that leads nowhere',
      [{ op: 'replace', path: 'shoeSize', value: 'x' }],
      'invalidPath',
      "'shoeSize'",
    ],
    [
      'a path that cannot be read',
      [{ op: 'replace', path: 'name..x', value: 'x' }],
      'invalidPath',
      "'name..x'",
    ],
    [
      'a filter on an attribute that is not a list',
      [{ op: 'remove', path: 'name[a eq "b"]' }],
      'invalidPath',
      'is not a list',
    ],
    [
      'a filter without a match',
      [{ op: 'replace', path: 'permissions.appGroup[appGroupName eq "x"]', value: {} }],
      'noTarget',
      "no value of 'appGroup'",
    ],
    ['remove without a path', [{ op: 'remove' }], 'noTarget', 'needs a path'],
    ['a read-only attribute', [{ op: 'replace', path: 'id', value: 'x' }], 'mutability', "'id'"],
    [
      'the time of a sign-in',
      [{ op: 'replace', path: 'lastSignInAt', value: 'x' }],
      'mutability',
      "'lastSignInAt'",
    ],
    [
      'another user name',
      [{ op: 'replace', path: 'userName', value: 'b@example.com' }],
      'mutability',
      "'userName'",
    ],
    [
      'remove of a required attribute',
      [{ op: 'remove', path: 'department' }],
      'invalidValue',
      "'department' is required",
    ],
    [
      'remove of the user name',
      [{ op: 'remove', path: 'userName' }],
      'invalidValue',
      "'userName' is required",
    ],
    ['an unknown department', [{ op: 'add', path: 'department', value: 'sales' }], 'invalidValue', "'sales'"],
    [
      'an unknown permission',
      [{ op: 'add', path: 'permissions.companyPermissions', value: ['fly'] }],
      'invalidValue',
      "'fly'",
    ],
    ['a value of another type', [{ op: 'replace', path: 'name', value: 'Ada' }], 'invalidValue', "'name'"],
    ['no value', [{ op: 'add', path: 'department' }], 'invalidValue', 'needs a value'],
    ['no object without a path', [{ op: 'add', value: 'x' }], 'invalidValue', 'is an object'],
    ['an empty object without a path', [{ op: 'add', value: {} }], 'invalidValue', 'with attributes'],
    ['two objects without a path', [{ op: 'add', value: [{}, {}] }], 'invalidValue', 'is an object'],
    [
      'an unknown name without a path',
      [{ op: 'replace', value: { shoeSize: 9, active: false } }],
      'invalidPath',
      "'value' is not valid: there is no attribute 'shoeSize'",
    ],
    [
      'an unknown member of a value',
      [{ op: 'replace', path: 'permissions', value: { appGroups: [] } }],
      'invalidValue',
      "'permissions' is not valid: it has no member 'appGroups'",
    ],
    [
      'a path in single quotes',
      [{ op: 'replace', path: "emails[type eq 'work'].value", value: 'x' }],
      'invalidPath',
      'double quotes',
    ],
    [
      'a name of more than 500 characters without a path',
      [{ op: 'replace', value: { ['x'.repeat(501)]: 1 } }],
      'invalidPath',
      'at most 500 characters',
    ],
    [
      'remove of an empty list of values',
      [{ op: 'remove', path: 'emails', value: [] }],
      'invalidValue',
      "'emails' is not valid: name the values to remove",
    ],
    [
      'remove of a value without members',
      [{ op: 'remove', path: 'emails', value: [{}] }],
      'invalidValue',
      "'emails' is not valid: name the values to remove",
    ],
    ['no operation', [], 'invalidValue', "'Operations'"],
    ['another operation', [{ op: 'move', path: 'department' }], 'invalidValue', "'Operations.0.op'"],
  ])('§3.12: %s is 400', async ([_, operations, scimType, detail]) => {
    const { id } = await provider.create();
    const answer = await provider.patch(id, operations);
    expect(answer).toMatchObject({ status: 400, body: { scimType, status: 400 } });
    expect(answer.body.detail).toContain(detail);
  });

  test('§3.5.2.2: remove of a single-valued attribute ignores the value that comes with it', async () => {
    const { id } = await provider.create({ externalId: 'x' });
    for (const value of ['', 'x', 'y', false]) {
      await provider.patch(id, [{ op: 'add', path: 'externalId', value: 'x' }]);
      const { status, body } = await provider.patch(id, [{ op: 'remove', path: 'externalId', value }]);
      expect(status).toBe(200);
      expect(body).not.toHaveProperty('externalId');
    }
  });

  test('a message other than a PatchOp is 400', async () => {
    const { id } = await provider.create();
    const json = { schemas: [USER], Operations: [{ op: 'replace', path: 'active', value: false }] };
    expect((await provider.call('PATCH', `/Users/${id}`, json)).status).toBe(400);
  });

  test('an unknown id is 404', async () => {
    const answer = await provider.patch('nobody', [{ op: 'replace', path: 'active', value: false }]);
    expect(answer).toMatchObject({ status: 404, body: { detail: 'User not found' } });
  });

  test('§3.14: If-Match with another version is 412', async () => {
    const { id } = await provider.create();
    const operations = [{ op: 'replace', path: 'active', value: false }];
    expect((await provider.patch(id, operations, { 'if-match': 'W/"9"' })).status).toBe(412);
    expect((await provider.patch(id, operations, { 'if-match': 'W/"1"' })).status).toBe(200);
  });

  test('simultaneous changes of different attributes all take effect', async () => {
    const { id } = await provider.create();
    const answers = await Promise.all([
      provider.patch(id, [{ op: 'replace', path: 'department', value: 'bi' }]),
      provider.patch(id, [{ op: 'replace', path: 'name.givenName', value: 'Augusta' }]),
      provider.patch(id, [{ op: 'replace', path: 'active', value: false }]),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    expect((await provider.call('GET', `/Users/${id}`)).body).toMatchObject({
      department: 'bi',
      name: { givenName: 'Augusta' },
      active: false,
      meta: { version: 'W/"4"' },
    });
  });
});
