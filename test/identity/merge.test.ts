import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { toProfileId } from '../../src/profile/identifier.ts';
import { alias, by, identity, merge, user } from './objects.ts';
import { createScene, does, has, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

const [first, second] = ['2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z'];

const bought = (external_id: string, price: number, currency = 'EUR', time = first) => ({
  ...{ external_id, product_id: 'book', currency, price, time },
});

describe('a merge', () => {
  it('fills custom attributes name by name', async () => {
    await scene.track({
      attributes: [
        { external_id: 'custom a', colour: 'red', size: 1, tags: ['a'] },
        { external_id: 'custom b', colour: 'blue', shape: 'round' },
      ],
    });
    await scene.apply([merge('custom a', 'custom b')]);
    expect((await scene.user('custom b')).custom_attributes).toEqual({
      ...{ colour: 'blue', size: 1, shape: 'round', tags: ['a'] },
    });
  });

  it('is ignored when both users have an invalid phone number', async () => {
    const phone = { standard: { phone: '+12', phone_valid: false } };
    await scene.apply(
      ['phone a', 'phone b', 'phone c'].map((name) => has(name, name === 'phone c' ? {} : phone)),
    );
    await scene.apply([merge('phone a', 'phone b')]);
    expect([await scene.user('phone a'), await scene.user('phone b')]).not.toContain(undefined);
    await scene.apply([merge('phone a', 'phone c')]);
    expect(await scene.user('phone a')).toBeUndefined();
  });

  it('moves latitude and longitude as a pair, or neither of them', async () => {
    const at = (longitude: number, latitude: number) => ({ current_location: { longitude, latitude } });
    await scene.track({
      attributes: [
        { external_id: 'place a', ...at(1, 2) },
        { external_id: 'place b', ...at(0, 0) },
        { external_id: 'place c' },
      ],
    });
    await scene.apply([merge('place a', 'place b'), merge('place b', 'place c')]);
    expect((await scene.user('place c')).last_coordinates).toEqual([0, 0]);
  });

  it('adds up events by name and purchases by product and currency, with first and last time', async () => {
    await scene.track({
      attributes: [{ external_id: 'sums a' }, { external_id: 'sums b' }],
      events: [
        { external_id: 'sums a', name: 'seen', time: second },
        { external_id: 'sums a', name: 'only a', time: first },
        { external_id: 'sums b', name: 'seen', time: first },
        { external_id: 'sums b', name: 'only b', time: first },
      ],
      purchases: [
        { ...bought('sums a', 0.1), quantity: 3 },
        bought('sums a', 5, 'USD'),
        bought('sums b', 0.2, 'EUR', second),
      ],
    });
    await scene.apply([merge('sums a', 'sums b')]);
    expect(await scene.user('sums b')).toMatchObject({
      custom_events: [
        { name: 'only a', first, last: first, count: 1 },
        { name: 'only b', first, last: first, count: 1 },
        { name: 'seen', first, last: second, count: 2 },
      ],
      purchases: [{ name: 'book', first, last: second, count: 5 }],
      revenue: { EUR: 0.5 },
      total_revenue: 5,
    });
  });

  it('adds up sessions of shared apps, and drops apps that only the merged user has', async () => {
    await scene.track({ attributes: [{ external_id: 'apps a' }, { external_id: 'apps b' }] });
    const [a, b] = [await scene.profileId('apps a'), await scene.profileId('apps b')];
    for (const [id, app, sessions] of [
      [a, 'both', 2],
      [a, 'only a', 3],
      [b, 'both', 5],
      [b, 'only b', 7],
    ]) {
      await scene.rows('insert into app_summaries values ($1, $2, $3, $4, $5, $6)', [
        ...[scene.workspaceId, id, app, sessions, first, second],
      ]);
    }
    await scene.apply([merge('apps a', 'apps b')]);
    const used = { first_used: first, last_used: second };
    expect((await scene.user('apps b')).apps).toEqual([
      { name: 'both', sessions: 7, ...used },
      { name: 'only b', sessions: 7, ...used },
    ]);
    expect(await scene.rows('select from app_summaries where profile_id = $1', [a])).toEqual([]);
  });

  it('moves push tokens and devices', async () => {
    const token = (name: string) => [{ app_id: 'app', token: name, device_id: `device ${name}` }];
    await scene.apply([
      has('tokens a', { push_tokens: token('merge a') }),
      has('tokens b', { push_tokens: token('merge b') }),
      merge('tokens a', 'tokens b'),
    ]);
    const { push_tokens, devices } = await scene.user('tokens b');
    expect(push_tokens.map((row: { token: string }) => row.token).sort()).toEqual(['merge a', 'merge b']);
    expect(devices).toHaveLength(2);
    expect((await scene.exported({ device_id: 'device merge a' })).external_id).toBe('tokens b');
  });

  it('moves aliases, except for labels that the kept user has', async () => {
    await scene.apply([has('aliases a', {}), has('aliases b', {})]);
    for (const [text, external_id] of [
      ['crm:1', 'aliases a'],
      ['web:1', 'aliases a'],
      ['web:2', 'aliases b'],
    ] as const) {
      await scene.apply([identity('alias_new', { ...alias(text), external_id })]);
    }
    await scene.apply([merge('aliases a', 'aliases b')]);
    expect((await scene.user('aliases b')).user_aliases).toEqual([
      { alias_label: 'crm', alias_name: '1' },
      { alias_label: 'web', alias_name: '2' },
    ]);
    expect(await scene.aliased('web:1')).toBeUndefined();
  });

  it('removes the merged user: both ids stop resolving, and a track creates a new user', async () => {
    await scene.apply([has('gone a', { set: { old: true } }), has('gone b', {})]);
    const { service_id } = await scene.user('gone a');
    const { service_id: kept, created_at } = await scene.user('gone b');
    await scene.apply([merge('gone a', 'gone b')]);
    expect(await scene.exported({ service_id })).toBeUndefined();
    expect(await scene.user('gone a')).toBeUndefined();
    expect(await scene.user('gone b')).toMatchObject({ service_id: kept, created_at });
    await scene.apply([does('gone a')]);
    const recreated = await scene.user('gone a');
    expect(recreated.service_id).not.toBe(service_id);
    expect(recreated.custom_attributes).toBeUndefined();
    expect((await scene.user('gone b')).custom_events).toBeUndefined();
  });

  it('moves the deprecated external ids of the merged user', async () => {
    await scene.apply([has('renamed a', {}), has('renamed b', {})]);
    const [current_external_id, new_external_id] = ['renamed a', 'renamed a2'];
    await scene.apply([identity('external_id_rename', { current_external_id, new_external_id })]);
    await scene.apply([merge('renamed a', 'renamed b')]);
    expect(await scene.user('renamed a')).toBeUndefined();
    expect(await scene.user('renamed a2')).toBeUndefined();
    expect(await scene.user('renamed b')).toBeDefined();
  });

  it('counts as an update of the kept user', async () => {
    await scene.apply([has('update a', {}), has('update b', {})]);
    const read = () =>
      scene.rows("select updated_at, created_at from profiles where external_id = 'update b'");
    const [before] = await read();
    await scene.rows("update profiles set updated_at = '2020-01-01' where external_id like 'update %'");
    await scene.apply([merge('update a', 'update b')]);
    const [after] = await read();
    expect(after.updated_at.getTime()).toBeGreaterThanOrEqual(before.updated_at.getTime());
    expect(after.created_at).toEqual(before.created_at);
  });

  it('keeps events and purchases in place, and references them from the kept user', async () => {
    await scene.track({
      events: [1, 2, 3].map((position) => ({ external_id: 'raw a', name: `seen ${position}`, time: first })),
      purchases: [bought('raw a', 1)],
    });
    await scene.apply([does('raw b')]);
    const { service_id } = await scene.user('raw a');
    const [a, b] = [toProfileId(service_id), await scene.profileId('raw b')];
    const raw = () =>
      scene.rows(
        `select tableoid::regclass::text as table, ctid::text, xmin::text, id from events where profile_id = $1
         union all
         select tableoid::regclass::text, ctid::text, xmin::text, id from purchases where profile_id = $1
         order by id`,
        [a],
      );
    const before = await raw();
    expect(before).toHaveLength(4);
    await scene.apply([merge('raw a', 'raw b')]);
    expect(await raw()).toEqual(before);
    expect(
      await scene.rows('select profile_id, kept_id from merged_profiles where kept_id = $1', [b]),
    ).toEqual([{ profile_id: a, kept_id: b }]);
  });

  it('is ignored when a side matches no user, or both sides match the same one', async () => {
    await scene.apply([has('alone', { set: { points: 1 } })]);
    await scene.apply([identity('alias_new', { ...alias('nick:alone'), external_id: 'alone' })]);
    const before = await scene.user('alone');
    const { leavesTombstones } = await scene.apply([
      merge('nobody', 'alone'),
      merge('alone', 'nobody'),
      merge('alone', 'alone'),
      identity('merge', { merge: by(alias('nick:alone')), keep: by(user('alone')) }),
      identity('merge', { merge: by({ service_id: before.service_id }), keep: by(alias('nick:alone')) }),
    ]);
    expect(leavesTombstones).toBe(false);
    expect(await scene.user('alone')).toEqual(before);
  });
});
