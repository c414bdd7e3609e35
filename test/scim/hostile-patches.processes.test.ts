import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createScene, PATCH_OP, type Provider, refusal, type Scene } from './scene.ts';

let scene: Scene;
let provider: Provider;
beforeAll(async () => {
  scene = await createScene();
  provider = scene.provider;
});
afterAll(() => scene.stop());

describe('a PATCH that means harm', () => {
  test('no name that every object has is written to', async () => {
    const { id } = await provider.create();
    const bodies = [
      '{"op":"add","path":"__proto__.polluted","value":"x"}',
      '{"op":"add","path":"constructor.prototype.polluted","value":"x"}',
      '{"op":"add","value":{"__proto__.polluted":"x","constructor.prototype.polluted":"x"}}',
      '{"op":"add","path":"name","value":{"__proto__.polluted":"x"}}',
      '{"op":"add","path":"permissions.appGroup[appGroupName eq \\"shop\\"]","value":{"__proto__":{"polluted":"x"}}}',
    ];
    // One attribute after the other gets a value of a type that is not its own, and that one members.
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
      const { status } = await provider.ask('PATCH', `/Users/${id}`, json);
      expect([200, 400]).toContain(status);
    }
    const { body } = await provider.ask('GET', `/Users/${id}`);
    expect(JSON.stringify(body)).not.toContain('polluted');
    // The service runs in this process: what it did to every object would be here too.
    expect(({} as Record<string, unknown>).polluted).toBeUndefined();
    expect(Object.keys({}.toString)).toEqual([]);
    // A member of every object would be on this one too.
    expect((await provider.ask('GET', '/ServiceProviderConfig')).body).not.toHaveProperty('polluted');
    expect(JSON.stringify((await provider.ask('GET', '/Schemas')).body)).not.toContain('polluted');
  });

  test('a list that is longer than an account can have is 400 before anything is compared, with its path and the rule', async () => {
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

  test('operations that together compare more than an account can need are 400, with the path up to which they do', async () => {
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

  test('values that no text can be made of are refused by name, also where a filter or a role meets them', async () => {
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
