import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Identifier, Prioritization } from '../../src/profile/identifier.ts';
import { alias, by, identity, user } from './objects.ts';
import { createScene, does, has, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

/** Returns an identify object; a text is an alias. */
function identify(
  who: string | Identifier,
  external_id: string,
  ...prioritization: Prioritization[]
): AcceptedObject {
  const identifier = typeof who === 'string' ? alias(who) : who;
  return identity('identify', { user: by(identifier, ...prioritization), external_id });
}

describe('identify', () => {
  it('gives an alias-only user an unused external id', async () => {
    await scene.apply([has(alias('l:new'), { set: { points: 1 } }), does(alias('l:new'))]);
    const { service_id } = await scene.aliased('l:new');
    await scene.apply([identify('l:new', 'new')]);
    expect(await scene.user('new')).toMatchObject({
      ...{ service_id, custom_attributes: { points: 1 }, custom_events: [{ count: 1 }] },
      user_aliases: [{ alias_label: 'l', alias_name: 'new' }],
    });
    await scene.apply([does('new'), does(alias('l:new'))]);
    expect((await scene.user('new')).custom_events).toMatchObject([{ count: 3 }]);
  });

  it('merges an alias-only user into the user that has the external id', async () => {
    await scene.apply([
      has(alias('l:known'), { set: { from: 'alias', colour: 'red' }, standard: { first_name: 'Ada' } }),
      does(alias('l:known')),
      has('known', { set: { colour: 'blue' } }),
      does('known'),
    ]);
    const { service_id } = await scene.aliased('l:known');
    await scene.apply([identify('l:known', 'known')]);
    const user = await scene.user('known');
    expect(user).toMatchObject({
      first_name: 'Ada',
      custom_attributes: { from: 'alias', colour: 'blue' },
      custom_events: [{ count: 2 }],
    });
    expect(await scene.exported({ service_id })).toBeUndefined();
    expect((await scene.aliased('l:known')).service_id).toBe(user.service_id);
  });

  it('ignores an alias of an identified user', async () => {
    await scene.apply([has('identified', {}), has('another', {})]);
    await scene.apply([identity('alias_new', { ...alias('l:identified'), external_id: 'identified' })]);
    await scene.apply([identify('l:identified', 'another'), identify('l:identified', 'brand new')]);
    expect((await scene.aliased('l:identified')).external_id).toBe('identified');
    expect(await scene.user('another')).toBeDefined();
    expect(await scene.user('brand new')).toBeUndefined();
  });

  it('ignores an unknown alias, and creates no user', async () => {
    await scene.apply([identify('l:nobody', 'no user')]);
    expect(await scene.user('no user')).toBeUndefined();
    expect(await scene.aliased('l:nobody')).toBeUndefined();
  });

  it('merges into a user with another alias of the label, whose own alias stays', async () => {
    await scene.apply([has('labelled', {}), has(alias('l:b'), { set: { points: 1 } })]);
    await scene.apply([identity('alias_new', { ...alias('l:a'), external_id: 'labelled' })]);
    await scene.apply([identify('l:b', 'labelled')]);
    expect(await scene.user('labelled')).toMatchObject({
      custom_attributes: { points: 1 },
      user_aliases: [{ alias_label: 'l', alias_name: 'a' }],
    });
    expect(await scene.aliased('l:b')).toBeUndefined();
    await scene.apply([has(alias('l:b'), { set: { points: 2 } })]);
    expect((await scene.user('labelled')).custom_attributes).toEqual({ points: 1 });
    expect(await scene.aliased('l:b')).toMatchObject({ custom_attributes: { points: 2 } });
  });

  it('merges two aliases of one label into one user in a batch, who keeps the first alias', async () => {
    await scene.apply([has(alias('l:1'), { set: { one: 1 } }), has(alias('l:2'), { set: { two: 2 } })]);
    await scene.apply([identify('l:1', 'twice'), identify('l:2', 'twice')]);
    expect(await scene.aliased('l:1')).toMatchObject({
      external_id: 'twice',
      custom_attributes: { one: 1, two: 2 },
    });
    expect(await scene.aliased('l:2')).toBeUndefined();
  });

  it('finds the user by a deprecated external id', async () => {
    await scene.apply([has('was', {}), has(alias('l:was'), { set: { points: 1 } })]);
    await scene.apply([
      identity('external_id_rename', { current_external_id: 'was', new_external_id: 'is' }),
      identify('l:was', 'was'),
    ]);
    expect(await scene.user('is')).toMatchObject({
      ...{ external_id: 'is', custom_attributes: { points: 1 } },
      user_aliases: [{ alias_label: 'l', alias_name: 'was' }],
    });
    expect((await scene.user('was')).external_id).toBe('is');
  });

  describe.each([
    ['email', (name: string) => ({ email: `${name}@x.com` }), {}],
    ['phone', (name: string) => ({ phone: `+4420718387${name.length}` }), { phone_valid: true }],
  ] as const)('by %s', (kind, addressOf, validity) => {
    const holds = (who: Identifier, name: string) =>
      has(who, { standard: { ...addressOf(name), ...validity } });

    it('selects the user without an external id that the prioritization leaves', async () => {
      const name = `${kind} narrowed`;
      await scene.apply([holds(user(`${name} kept`), name)]);
      await scene.apply([holds(alias(`${name}:1`), name)]);
      await scene.apply([holds(alias(`${name}:2`), name)]);
      await scene.apply([identify(addressOf(name), `${name} 2`, 'unidentified', 'most_recently_updated')]);
      expect((await scene.aliased(`${name}:2`)).external_id).toBe(`${name} 2`);
      expect((await scene.aliased(`${name}:1`)).external_id).toBeUndefined();
      await scene.apply([identify(addressOf(name), `${name} kept`, 'unidentified')]);
      expect((await scene.aliased(`${name}:1`)).external_id).toBe(`${name} kept`);
    });

    it('is ignored when several users are left, or an identified one', async () => {
      const name = `${kind} several`;
      await scene.apply([holds(alias(`${name}:1`), name)]);
      await scene.apply([holds(alias(`${name}:2`), name)]);
      await scene.apply([holds(user(`${name} identified`), name)]);
      await scene.apply([
        identify(addressOf(name), `${name} new`, 'unidentified'),
        identify(addressOf(name), `${name} new`, 'most_recently_updated'),
      ]);
      expect(await scene.user(`${name} new`)).toBeUndefined();
      expect(await scene.aliased(`${name}:1`)).toBeDefined();
      expect(await scene.aliased(`${name}:2`)).toBeDefined();
    });
  });
});
