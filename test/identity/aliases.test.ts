import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { alias, identity, merge } from './objects.ts';
import { createScene, does, has, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

const gives = (text: string, external_id?: string): AcceptedObject =>
  identity('alias_new', { ...alias(text), ...(external_id !== undefined && { external_id }) });

function renames(from: string, to: string): AcceptedObject {
  const { alias_label, alias_name: old_alias_name } = alias(from).user_alias;
  return identity('alias_update', {
    ...{ alias_label, old_alias_name, new_alias_name: alias(to).user_alias.alias_name },
  });
}

describe('a new alias', () => {
  it('without an external id creates an alias-only user that can be tracked', async () => {
    await scene.apply([gives('l:only'), does(alias('l:only'))]);
    const made = await scene.aliased('l:only');
    expect(made).toMatchObject({ custom_events: [{ count: 1 }] });
    expect(made.external_id).toBeUndefined();
  });

  it('with an external id is added to the user, who may have any number of labels', async () => {
    await scene.apply([has('labels', {})]);
    await scene.apply([gives('l:labels', 'labels'), gives('m:labels', 'labels')]);
    await scene.apply([does(alias('l:labels')), does(alias('m:labels'))]);
    expect(await scene.user('labels')).toMatchObject({
      custom_events: [{ count: 2 }],
      user_aliases: [{ alias_label: 'l' }, { alias_label: 'm' }],
    });
  });

  it('finds a user that is created in the same batch', async () => {
    await scene.apply([has('made', {}), gives('l:made', 'made')]);
    expect((await scene.aliased('l:made')).external_id).toBe('made');
  });

  it('with an unknown external id is ignored', async () => {
    await scene.apply([gives('l:unknown', 'unknown')]);
    expect(await scene.aliased('l:unknown')).toBeUndefined();
    expect(await scene.user('unknown')).toBeUndefined();
  });

  it('that is already in use stays with its user', async () => {
    await scene.apply([has('late', {}), gives('l:taken')]);
    const { service_id } = await scene.aliased('l:taken');
    await scene.apply([gives('l:taken', 'late'), gives('l:taken')]);
    expect((await scene.aliased('l:taken')).service_id).toBe(service_id);
    expect((await scene.user('late')).user_aliases).toEqual([]);
  });

  it('under a label that the user already has is ignored', async () => {
    await scene.apply([has('full', {}), gives('l:full 1', 'full')]);
    await scene.apply([gives('l:full 2', 'full')]);
    expect((await scene.user('full')).user_aliases).toEqual([{ alias_label: 'l', alias_name: 'full 1' }]);
    expect(await scene.aliased('l:full 2')).toBeUndefined();
  });

  it('two in one batch under one label: the user gets the first one', async () => {
    await scene.apply([has('both', {})]);
    await scene.apply([gives('l:both 1', 'both'), gives('l:both 2', 'both')]);
    expect((await scene.user('both')).user_aliases).toEqual([{ alias_label: 'l', alias_name: 'both 1' }]);
  });

  it('after a merge that brings an alias under the same label is ignored', async () => {
    await scene.apply([has('brings', {}), gives('l:brings', 'brings'), has('takes', {})]);
    await scene.apply([merge('brings', 'takes'), gives('l:takes', 'takes')]);
    expect((await scene.user('takes')).user_aliases).toEqual([{ alias_label: 'l', alias_name: 'brings' }]);
  });
});

describe('a renamed alias', () => {
  it('resolves only by its new name', async () => {
    await scene.apply([gives('l:old')]);
    const { service_id } = await scene.aliased('l:old');
    await scene.apply([renames('l:old', 'l:new')]);
    expect(await scene.aliased('l:old')).toBeUndefined();
    expect((await scene.aliased('l:new')).service_id).toBe(service_id);
  });

  it('must match label and name exactly', async () => {
    await scene.apply([gives('l:Exact')]);
    await scene.apply([renames('l:exact', 'l:1'), renames('l:Exact ', 'l:2'), renames('L:Exact', 'L:3')]);
    expect(await scene.aliased('l:Exact')).toBeDefined();
    for (const name of ['l:1', 'l:2', 'L:3', 'l:3']) expect(await scene.aliased(name)).toBeUndefined();
  });

  it('keeps its name when the new one is in use', async () => {
    await scene.apply([gives('l:mine'), gives('l:yours')]);
    const [mine, yours] = [await scene.aliased('l:mine'), await scene.aliased('l:yours')];
    await scene.apply([renames('l:mine', 'l:yours')]);
    expect([await scene.aliased('l:mine'), await scene.aliased('l:yours')]).toEqual([mine, yours]);
  });

  it('that does not exist creates no user', async () => {
    await scene.apply([renames('l:nobody', 'l:somebody')]);
    expect(await scene.aliased('l:somebody')).toBeUndefined();
  });

  it('a chain in one batch follows its order', async () => {
    await scene.apply([gives('s:a'), gives('s:b')]);
    const [a, b] = [await scene.aliased('s:a'), await scene.aliased('s:b')];
    // The first name is taken and the others are free: in the end the two users have swapped names.
    await scene.apply([
      renames('s:a', 's:b'),
      renames('s:a', 's:c'),
      renames('s:b', 's:a'),
      renames('s:c', 's:b'),
    ]);
    expect((await scene.aliased('s:b')).service_id).toBe(a.service_id);
    expect((await scene.aliased('s:a')).service_id).toBe(b.service_id);
    expect(await scene.aliased('s:c')).toBeUndefined();
  });

  it('is tracked under its new name in the same batch, and the old name is free', async () => {
    await scene.apply([gives('t:old')]);
    await scene.apply([
      does(alias('t:old')),
      renames('t:old', 't:new'),
      does(alias('t:new')),
      { ...does(alias('t:old')), create: false },
    ]);
    expect((await scene.aliased('t:new')).custom_events).toMatchObject([{ count: 2 }]);
    expect(await scene.aliased('t:old')).toBeUndefined();
  });
});
