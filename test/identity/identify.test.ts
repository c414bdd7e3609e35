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

/** A text is an alias. */
function identify(
  who: string | Identifier,
  external_id: string,
  ...prioritization: Prioritization[]
): AcceptedObject {
  const identifier = typeof who === 'string' ? alias(who) : who;
  return identity('identify', { user: by(identifier, ...prioritization), external_id });
}

describe('to identify', () => {
  it('gives an alias-only user an external id that nobody has', async () => {
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

  it('lets the user who has the external id take the alias-only user in, who disappears', async () => {
    await scene.apply([
      has(alias('l:known'), { set: { from: 'alias', colour: 'red' }, standard: { first_name: 'Ada' } }),
      does(alias('l:known')),
      has('known', { set: { colour: 'blue' } }),
      does('known'),
    ]);
    const { service_id } = await scene.aliased('l:known');
    await scene.apply([identify('l:known', 'known')]);
    const known = await scene.user('known');
    expect(known).toMatchObject({
      first_name: 'Ada',
      custom_attributes: { from: 'alias', colour: 'blue' },
      custom_events: [{ count: 2 }],
    });
    expect(await scene.exported({ service_id })).toBeUndefined();
    expect((await scene.aliased('l:known')).service_id).toBe(known.service_id);
  });

  it('does nothing with an alias of a user who is identified already', async () => {
    await scene.apply([has('identified', {}), has('another', {})]);
    await scene.apply([identity('alias_new', { ...alias('l:identified'), external_id: 'identified' })]);
    await scene.apply([identify('l:identified', 'another'), identify('l:identified', 'brand new')]);
    expect((await scene.aliased('l:identified')).external_id).toBe('identified');
    expect(await scene.user('another')).toBeDefined();
    expect(await scene.user('brand new')).toBeUndefined();
  });

  it('does nothing with an alias that nobody has: no user is made', async () => {
    await scene.apply([identify('l:nobody', 'no user')]);
    expect(await scene.user('no user')).toBeUndefined();
    expect(await scene.aliased('l:nobody')).toBeUndefined();
  });

  it('combines with a user who has another alias under the label: that one stays, the other means nobody', async () => {
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

  it('two aliases under one label with one external id, in one batch: both are combined, the first stays', async () => {
    await scene.apply([has(alias('l:1'), { set: { one: 1 } }), has(alias('l:2'), { set: { two: 2 } })]);
    await scene.apply([identify('l:1', 'twice'), identify('l:2', 'twice')]);
    expect(await scene.aliased('l:1')).toMatchObject({
      external_id: 'twice',
      custom_attributes: { one: 1, two: 2 },
    });
    expect(await scene.aliased('l:2')).toBeUndefined();
  });

  it('finds the external id that a user went by before', async () => {
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

    it('names the user without an external id whom the prioritization leaves', async () => {
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

    it('does nothing when several are left, or one who is identified', async () => {
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
