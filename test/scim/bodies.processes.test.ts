import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { accountOf, createScene, PATCH_OP, type Provider, refusal, type Scene } from './scene.ts';

let scene: Scene;
let provider: Provider;
let setId: string;
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
  const { rows } = await scene.pool.query(
    'insert into permission_sets (id, company_id, name, permissions) values (gen_random_uuid(), $1, $2, $3) returning id',
    [provider.companyId, 'Analyst', ['basic_access']],
  );
  setId = rows[0].id;
});
afterAll(() => scene.stop());

describe('the body of POST and PUT', () => {
  test('RFC 7643 §2.1: attribute names are case-insensitive; a repeated one is 400', async () => {
    const { schemas, userName, department } = accountOf('shop');
    const set = { appgroupname: 'shop', appGroupPermissionSets: [{ appGroupPermissionSetID: setId }] };
    const given = {
      SCHEMAS: schemas!,
      username: userName!,
      NAME: { GivenName: 'Ada', familyname: 'L' },
      Permissions: { AppGroup: [set] },
    };
    const { status, body } = await provider.call('POST', '/Users', {
      ...given,
      Department: department!,
    });
    expect({ status, body }).toMatchObject({
      status: 201,
      body: {
        userName,
        department,
        name: { givenName: 'Ada', familyName: 'L' },
        permissions: { appGroup: [{ appGroupPermissionSets: [{ appGroupPermissionSetName: 'Analyst' }] }] },
      },
    });
    const put = await provider.call('PUT', `/Users/${body.id}`, { ...given, DEPARTMENT: 'bi' });
    expect(put).toMatchObject({ status: 200, body: { department: 'bi' } });
    const twice = { ...accountOf('shop'), username: 'two@example.com' };
    expect(await provider.call('POST', '/Users', twice)).toMatchObject(
      refusal(400, "'userName' is not valid: it is given twice", 'invalidSyntax'),
    );
  });

  test('RFC 7643 §2.5: null is the same as an absent attribute', async () => {
    const created = await provider.create({ externalId: null, active: null });
    expect(created.active).toBe(true);
    expect(created).not.toHaveProperty('externalId');
    const answer = await provider.call('POST', '/Users', accountOf('shop', { department: null }));
    expect(answer).toMatchObject(refusal(400, "'department' is required", 'invalidValue'));
  });

  test('roles in permissions are stored and returned, and a PUT without them removes them', async () => {
    const roles: Json = [{ roleName: 'Boss' }, { roleId: 'r-7', roleName: 'Clerk', appGroup: [] }];
    const stored = [{ roleName: 'Boss' }, { roleId: 'r-7', roleName: 'Clerk' }];
    const created = await provider.create({ permissions: { roles, appGroup: [] } });
    expect(created.permissions).toEqual({ companyPermissions: [], roles: stored, appGroup: [] });
    expect((await provider.call('GET', `/Users/${created.id}`)).body).toEqual(created);
    const same = await provider.call('PUT', `/Users/${created.id}`, created);
    expect(same.body).toEqual(created);
    const without = { ...created, permissions: { appGroup: [] } };
    const put = await provider.call('PUT', `/Users/${created.id}`, without);
    expect(put.body.permissions).not.toHaveProperty('roles');
  });

  test('a role without a name and an id, and more than 50 roles, are 400', async () => {
    const refused = (roles: Json) =>
      provider.call('POST', '/Users', accountOf('shop', { permissions: { roles, appGroup: [] } }));
    expect(await refused([{ roleName: 'Boss' }, {}])).toMatchObject(
      refusal(400, "'permissions.roles.1' is not valid: it needs roleName or roleId", 'invalidValue'),
    );
    expect(await refused(Array(51).fill({ roleName: 'Boss' }))).toMatchObject(
      refusal(
        400,
        "'permissions.roles' is not valid: it must be an array of at most 50 objects",
        'invalidValue',
      ),
    );
  });
});

describe('the values of PATCH', () => {
  test('RFC 7643 §2.5: setting null removes the attribute', async () => {
    const { id } = await provider.create({ externalId: 'x' });
    const one = await provider.patch(id, [
      { op: 'replace', path: 'permissions.companyPermissions', value: null },
      { op: 'replace', value: { externalId: null, department: 'bi' } },
    ]);
    expect(one.body).toMatchObject({ department: 'bi', permissions: { companyPermissions: [] } });
    expect(one.body).not.toHaveProperty('externalId');
    expect(
      await provider.patch(id, [{ op: 'replace', path: 'name', value: { givenName: null } }]),
    ).toMatchObject({
      status: 400,
      body: { scimType: 'invalidValue', detail: "'name.givenName' is required" },
    });
  });

  test('null among the values of a list is 400', async () => {
    const { id } = await provider.create();
    const { status, body } = await provider.patch(id, [
      { op: 'add', path: 'permissions.appGroup', value: [null] },
      { op: 'replace', path: 'permissions.appGroup.appGroupPermissions', value: ['admin'] },
    ]);
    expect({ status, body }).toMatchObject({ status: 400, body: { scimType: 'invalidValue' } });
  });

  test('RFC 7643 §2.4: a filter finds a string of a list by its value', async () => {
    const path = (name: string) => `permissions.companyPermissions[value eq "${name}"]`;
    const { id } = await provider.create();
    const { body } = await provider.patch(id, [
      { op: 'add', path: 'permissions.companyPermissions', value: ['admin', 'add_remove_app_groups'] },
      { op: 'remove', path: path('manage_company_settings') },
      { op: 'replace', path: path('add_remove_app_groups'), value: 'manage_company_settings' },
    ]);
    expect(body.permissions.companyPermissions).toEqual(['admin', 'manage_company_settings']);
  });

  test('roles are added, removed by name, and replaced, with and without a path', async () => {
    const { id } = await provider.create();
    const rolesAfter = async (operation: Json) => {
      const { status, body } = await provider.patch(id, [operation]);
      expect({ status, body }).toMatchObject({ status: 200 });
      return body.permissions.roles;
    };
    const path = 'permissions.roles';
    const [boss, clerk] = [{ roleName: 'Boss' }, { roleId: 'r-7', roleName: 'Clerk' }];
    expect(await rolesAfter({ op: 'add', value: { permissions: { roles: [boss] } } })).toEqual([boss]);
    expect(await rolesAfter({ op: 'add', value: { [path]: [clerk] } })).toEqual([boss, clerk]);
    expect(await rolesAfter({ op: 'remove', path, value: [{ roleName: 'Clerk' }] })).toEqual([boss]);
    expect(await rolesAfter({ op: 'replace', path: 'permissions', value: { roles: [clerk] } })).toEqual([
      clerk,
    ]);
    expect(await rolesAfter({ op: 'remove', path: `${path}[roleId eq "r-7"]` })).toBeUndefined();
  });
});

describe('a hostile PATCH', () => {
  test('names of inherited members are not written to', async () => {
    const { id } = await provider.create();
    const bodies = [
      '{"op":"add","path":"__proto__.polluted","value":"x"}',
      '{"op":"add","path":"constructor.prototype.polluted","value":"x"}',
      '{"op":"add","value":{"__proto__.polluted":"x","constructor.prototype.polluted":"x"}}',
      '{"op":"add","path":"name","value":{"__proto__.polluted":"x"}}',
      '{"op":"add","path":"permissions.appGroup[appGroupName eq \\"shop\\"]","value":{"__proto__":{"polluted":"x"}}}',
    ];
    // One attribute after the other gets a value of a wrong type with inherited members.
    const [paths, names] = [
      ['department', 'active', 'externalId', 'name.givenName'],
      ['__proto__', '__proto__.polluted', 'constructor.prototype.polluted', 'toString.polluted'],
    ];
    for (const path of paths)
      for (const name of names)
        bodies.push(
          `{"op":"add","path":"${path}","value":{"a":1}},{"op":"add","path":"${path}","value":{"${name}":{"polluted":"x"}}}`,
        );
    for (const operation of bodies) {
      const json = JSON.parse(`{"schemas":["${PATCH_OP}"],"Operations":[${operation}]}`);
      const { status } = await provider.call('PATCH', `/Users/${id}`, json);
      expect([200, 400]).toContain(status);
    }
    const { body } = await provider.call('GET', `/Users/${id}`);
    expect(JSON.stringify(body)).not.toContain('polluted');
    // The service runs in this process, so that a change to the prototype would be visible here too.
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    expect(Object.keys({}.toString)).toEqual([]);
    // A change to the prototype would show in this object too.
    expect((await provider.call('GET', '/ServiceProviderConfig')).body).not.toHaveProperty('polluted');
    expect(JSON.stringify((await provider.call('GET', '/Schemas')).body)).not.toContain('polluted');
  });

  test('a list longer than an account may have is 400 before any comparison, with path and rule', async () => {
    const { id } = await provider.create();
    const many = Array.from({ length: 150_000 }, (_, index) => index);
    const path = 'permissions.companyPermissions';
    for (const op of ['add', 'remove', 'replace']) {
      const answer = await provider.patch(id, [{ op, path, value: many }]);
      expect(answer).toMatchObject(
        refusal(400, `'${path}' is not valid: it must be an array of at most 500 strings`, 'invalidValue'),
      );
    }
  });

  test('operations that compare more than an account needs are 400, with the path they reached', async () => {
    const { id } = await provider.create();
    const path = 'permissions.appGroup.appGroupPermissions';
    const workspaces = Array.from({ length: 500 }, () => ({ appGroupPermissions: ['admin'] }));
    const answer = await provider.patch(id, [
      { op: 'replace', path: 'permissions.appGroup', value: workspaces },
      ...Array.from({ length: 90 }, (_, index) => ({ op: 'add', path, value: [String(index)] })),
    ]);
    expect(answer).toMatchObject(refusal(400, expect.stringContaining(`whose path is '${path}'`)));
    expect(answer.body.detail).toContain('more than 200000 values');
  });

  test('values without a text form are rejected by name, also in filters and roles', async () => {
    const { id } = await provider.create();
    const noText = { toString: 1, valueOf: 1 };
    const path = 'permissions.companyPermissions';
    const filtered = await provider.patch(id, [
      { op: 'add', path, value: [noText] },
      { op: 'remove', path: `${path}[value sw "a"]` },
    ]);
    expect(filtered).toMatchObject({ status: 400, body: { scimType: 'invalidValue' } });
    const roles = await provider.patch(id, [
      { op: 'add', path: 'permissions', value: { roles: [{ roleName: noText }] } },
    ]);
    expect(roles).toMatchObject({ status: 400, body: { scimType: 'invalidValue' } });
  });
});
