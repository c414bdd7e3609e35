import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { deliver, makeTriggers } from '../workers/batch.ts';
import { alias, by, identity, merge, remove, user } from './objects.ts';
import { createScene, does, has, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

const rename = (current_external_id: string, new_external_id: string): AcceptedObject =>
  identity('external_id_rename', { current_external_id, new_external_id });
const forget = (external_id: string): AcceptedObject => identity('external_id_remove', { external_id });

/** Creates a renamed user. @returns both external ids */
async function renamed(name: string): Promise<[string, string]> {
  await scene.apply([has(`${name} old`, {}), rename(`${name} old`, `${name} new`)]);
  return [`${name} old`, `${name} new`];
}

describe('a renamed external id', () => {
  it('still resolves after a rename, for exports and for tracking', async () => {
    await scene.apply([has('plain', {})]);
    const { service_id } = await scene.user('plain');
    const object = rename('plain', 'plain new');
    await scene.apply([does('plain'), object, does('plain new'), does('plain')]);
    expect(await scene.outcome(object)).toBeNull();
    for (const name of ['plain', 'plain new']) {
      expect(await scene.user(name)).toMatchObject({
        ...{ external_id: 'plain new', service_id, custom_events: [{ count: 3 }] },
      });
    }
  });

  it('resolves on either side of a merge', async () => {
    const [old] = await renamed('merged');
    const [keptBefore] = await renamed('kept');
    await scene.apply([has(old, { set: { points: 1 } }), merge(old, keptBefore)]);
    expect((await scene.user('kept new')).custom_attributes).toEqual({ points: 1 });
    expect(await scene.user('merged new')).toBeUndefined();
  });

  it('resolves for an alias and for a delete', async () => {
    const [old, now] = await renamed('aliased');
    await scene.apply([identity('alias_new', { ...alias('l:aliased'), external_id: old })]);
    expect((await scene.aliased('l:aliased')).external_id).toBe(now);
    await scene.apply([remove(old)]);
    expect(await scene.user(now)).toBeUndefined();
    // The removed id is free again.
    await scene.apply([does(old)]);
    expect((await scene.user(old)).external_id).toBe(old);
  });

  it('resolves to its new user once it was removed and assigned again', async () => {
    const [old, now] = await renamed('again');
    await scene.apply([forget(old), does(old)]);
    expect((await scene.user(old)).external_id).toBe(old);
    expect((await scene.user(now)).custom_events).toBeUndefined();
  });

  it('resolves after several renames, as all earlier ids do', async () => {
    await scene.apply([has('1st', {}), rename('1st', '2nd'), rename('2nd', '3rd')]);
    for (const name of ['1st', '2nd', '3rd']) expect((await scene.user(name)).external_id).toBe('3rd');
  });

  it('counts as an update', async () => {
    const email = 'renamed@x.com';
    for (const name of ['one', 'other']) await scene.apply([has(`rename ${name}`, { standard: { email } })]);
    await scene.rows("update profiles set updated_at = '2020-01-01' where email = $1", [email]);
    await scene.apply([rename('rename one', 'rename first')]);
    await scene.apply([identity('delete', { user: by({ email }, 'most_recently_updated') })]);
    expect(await scene.user('rename first')).toBeUndefined();
  });
});

describe('a rename is rejected with a reason', () => {
  it("when the new id is another user's current or deprecated id", async () => {
    const [old, now] = await renamed('used');
    await scene.apply([has('wants', {})]);
    for (const taken of [old, now]) {
      const object = rename('wants', taken);
      await scene.apply([object]);
      expect(await scene.outcome(object)).toBe('new_external_id is already in use');
    }
    const back = rename(now, old);
    await scene.apply([back]);
    expect(await scene.outcome(back)).toBe('new_external_id is already in use');
    expect((await scene.user('wants')).external_id).toBe('wants');
    expect((await scene.user(old)).external_id).toBe(now);
  });

  it('when no user has the current id', async () => {
    const [old, now] = await renamed('current');
    for (const current of ['nobody', old]) {
      const object = rename(current, 'free');
      await scene.apply([object]);
      expect(await scene.outcome(object)).toMatch(/^no user goes by the current_external_id/);
    }
    expect((await scene.user(now)).external_id).toBe(now);
    expect(await scene.user('free')).toBeUndefined();
  });

  it('in one batch: the second rename to an id fails because it is in use', async () => {
    await scene.apply([has('racer 1', {}), has('racer 2', {})]);
    const objects = [rename('racer 1', 'prize'), rename('racer 2', 'prize')] as const;
    await scene.apply([...objects]);
    expect(await scene.outcome(objects[0])).toBeNull();
    expect(await scene.outcome(objects[1])).toBe('new_external_id is already in use');
  });
});

it('G8: a user with 500 deprecated ids can be renamed only after one of them is removed', async () => {
  await scene.apply([has('often', {})]);
  await scene.rows(
    `insert into deprecated_external_ids (workspace_id, external_id, profile_id, created_at)
     select $1, 'often ' || number, $2, now() from generate_series(1, 499) as number`,
    [scene.workspaceId, await scene.profileId('often')],
  );
  const [last, refused, later] = [
    rename('often', 'very often'),
    rename('very often', 'too often'),
    rename('very often', 'as often'),
  ];
  await scene.apply([last, refused, forget('often 7'), later]);
  expect(await scene.outcome(last)).toBeNull();
  expect(await scene.outcome(refused)).toContain('the user has 500 deprecated external ids');
  expect(await scene.outcome(later)).toBeNull();
  expect((await scene.user('often 8')).external_id).toBe('as often');
});

describe('an external id is removed', () => {
  it('when it is deprecated: it stops resolving, and the user stays', async () => {
    const [old, now] = await renamed('removed');
    const object = forget(old);
    await scene.apply([object]);
    expect(await scene.outcome(object)).toBeNull();
    expect(await scene.user(old)).toBeUndefined();
    expect(await scene.user(now)).toBeDefined();
  });

  it('only when it is deprecated; otherwise the outcome names the reason', async () => {
    await scene.apply([has('primary', {})]);
    const [primary, nobody] = [forget('primary'), forget('no one')];
    await scene.apply([primary, nobody]);
    expect(await scene.outcome(primary)).toMatch(/is not deprecated/);
    expect(await scene.outcome(nobody)).toMatch(/^no user has the external_id/);
    expect(await scene.user('primary')).toBeDefined();
  });
});

it('an object that the store rejects has an outcome and a dead letter', async () => {
  await scene.apply([has('refused', {}), has('fine', {})]);
  await makeTriggers(scene.pool, [
    `create function refuse() returns trigger language plpgsql as $$ begin raise exception 'refused'; end $$`,
    `create trigger refuse before update on profiles
      for each row when (new.external_id = 'poison') execute function refuse()`,
  ]);
  const [poison, fine] = [rename('refused', 'poison'), rename('fine', 'finer')];
  const delivery = deliver({ id: scene.workspaceId }, [poison, fine]);
  expect(await applyBatch(scene.pool, [delivery])).toMatchObject({ deadLetters: [poison.id] });
  expect(await scene.outcome(poison)).toBe('refused');
  expect(await scene.outcome(fine)).toBeNull();
  expect(await scene.deadLetters([poison.id])).toEqual([poison.id]);
  await scene.apply([identity('delete', { user: by(user('poison')) })]);
  expect(await scene.deadLetters([poison.id])).toEqual([]);
});
