import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { readAttributeChanges } from '../../src/store/attribute-changes.ts';
import { by, identity } from '../identity/objects.ts';
import type { TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes, createStore, deliver, event } from './batch.ts';

let pool: pg.Pool;
let workspace: TestWorkspace;
beforeAll(async () => {
  ({ pool, workspace } = await createStore());
});
afterAll(() => pool.end());

type Objects = Parameters<typeof deliver>[1];

async function apply(...objects: Objects) {
  const delivery = deliver(workspace, objects);
  await applyBatch(pool, [delivery]);
  return delivery;
}

async function textOf(externalId: string): Promise<string | null> {
  const { rows } = await pool.query(
    'select attribute_changes as text from profiles where workspace_id = $1 and external_id = $2',
    [workspace.id, externalId],
  );
  return rows[0].text;
}

/** Returns the names of each entry, newest first. */
async function namesOf(externalId: string): Promise<string[][]> {
  return readAttributeChanges((await textOf(externalId)) ?? '').map(({ names }) => [...names].sort());
}

const set = (user: string, values: Record<string, string | number | null | string[]>) =>
  attributes(user, { set: values });

describe('changes of attributes', () => {
  test('are stored with the names that changed, the time and the request', async () => {
    const delivery = await apply(set('ada', { plan: 'free', points: 1 }));
    await apply(set('ada', { plan: 'free', points: 2 }));
    expect(await namesOf('ada')).toEqual([['points'], ['plan', 'points']]);
    const [, first] = readAttributeChanges((await textOf('ada'))!);
    expect(first!.requestId).toBe(delivery.envelope.requests![0]!.request_id);
    expect(Math.abs(first!.at.getTime() - Date.now())).toBeLessThan(60_000);
  });

  test('are one entry for all objects of a user in a batch', async () => {
    await apply(set('bea', { a: 1 }), set('bea', { b: 1 }), set('other', { a: 1 }), set('bea', { a: 2 }));
    await apply(set('bea', { a: 3 }), set('bea', { b: 3 }));
    expect(await namesOf('bea')).toEqual([
      ['a', 'b'],
      ['a', 'b'],
    ]);
  });

  test('are not stored for a value that stays, an event, or a removed name that was not there', async () => {
    await apply(set('cleo', { plan: 'free', tags: ['a', 'b'] }));
    const before = await textOf('cleo');
    await apply(set('cleo', { plan: 'free', tags: ['a', 'b'] }));
    await apply(event('cleo'));
    await apply(set('cleo', { absent: null }));
    await apply(attributes('cleo', { standard: {}, set: {} }));
    expect(await textOf('cleo')).toBe(before);
  });

  test('include removed attributes, increments, parts of arrays and types', async () => {
    await apply(set('dora', { plan: 'free', points: 1, tags: ['a', 'b'], code: 1 }));
    await apply(set('dora', { plan: null }));
    await apply(attributes('dora', { change: { points: { inc: 1 } } }));
    await apply(set('dora', { tags: ['a'] }));
    await apply(set('dora', { code: '1' }));
    expect((await namesOf('dora')).slice(0, 4)).toEqual([['code'], ['tags'], ['points'], ['plan']]);
  });

  test('include removed attributes of many names at once', async () => {
    const names = Array.from({ length: 20 }, (_, n) => `n${n}`);
    await apply(set('dido', Object.fromEntries(names.map((name) => [name, 1]))));
    await apply(set('dido', Object.fromEntries([...names.slice(2), 'absent'].map((name) => [name, null]))));
    expect((await namesOf('dido'))[0]).toEqual(names.slice(2).sort());
  });

  test('include standard attributes, without the states of subscriptions', async () => {
    await apply(
      attributes('emma', { standard: { first_name: 'Emma', country: 'DE' }, set: { plan: 'free' } }),
    );
    await apply(
      attributes('emma', {
        ...{ standard: { first_name: 'Emma', country: 'FR', phone: '+14155550123', phone_valid: true } },
        ...{ email_subscribe: 'unsubscribed', set: { plan: 'pro' } },
      }),
    );
    expect(await namesOf('emma')).toEqual([
      ['country', 'phone', 'plan'],
      ['country', 'first_name', 'plan'],
    ]);
  });

  test('are found in large attributes as well', async () => {
    const large = Object.fromEntries(Array.from({ length: 60 }, (_, n) => [`large_${n}`, `${n}`.repeat(60)]));
    await apply(set('flora', large));
    const [first] = readAttributeChanges((await textOf('flora'))!);
    expect([first!.isCut, first!.names[0]]).toEqual([true, 'large_0']);
    await apply(set('flora', { ...large, large_7: 'other' }));
    expect((await namesOf('flora'))[0]).toEqual(['large_7']);
  });

  test('take a bounded text per user, of which the newest entries stay', async () => {
    for (let n = 0; n < 60; n++)
      await apply(set('gina', { [`attribute_${n % 3}`]: n, ...(n % 9 ? {} : { ['ü'.repeat(250)]: n }) }));
    const text = (await textOf('gina'))!;
    expect(text.length).toBeLessThan(900);
    const names = await namesOf('gina');
    expect(names.length).toBeGreaterThanOrEqual(3);
    expect(names.slice(0, 3)).toEqual([['attribute_2'], ['attribute_1'], ['attribute_0']]);
  });

  test('keep all their names if characters of two UTF-16 units fill less than the room', async () => {
    const names = ['😀'.repeat(60), '🎉'.repeat(60)];
    await apply(set('emma', Object.fromEntries(names.map((name) => [name, 1]))));
    const read = async () => readAttributeChanges((await textOf('emma'))!)[0];
    expect(await read()).toMatchObject({ isCut: false, names: expect.arrayContaining(names) });
    await apply(set('emma', { ['😀'.repeat(150)]: 1, ['🎉'.repeat(150)]: 1 }));
    expect(await read()).toMatchObject({ isCut: true, names: [expect.any(String)] });
  });

  test('are written once if an envelope is delivered again', async () => {
    const delivery = await apply(set('nora', { plan: 'free' }));
    await applyBatch(pool, [delivery]);
    await applyBatch(pool, [delivery]);
    expect(await namesOf('nora')).toEqual([['plan']]);
  });

  test('belong to the kept user after a merge', async () => {
    await apply(set('ida', { plan: 'free' }));
    await apply(set('ida-old', { points: 1 }));
    await apply(
      identity('merge', { merge: by({ external_id: 'ida-old' }), keep: by({ external_id: 'ida' }) }),
    );
    expect(await namesOf('ida')).toEqual([['plan'], ['points']]);
    await apply(set('ida', { plan: 'pro' }));
    expect(await namesOf('ida')).toEqual([['plan'], ['plan'], ['points']]);
  });

  test('take a bounded text after many merges', async () => {
    await apply(set('jane', { plan: 'free' }));
    for (let n = 0; n < 40; n++) {
      await apply(set(`jane-${n}`, { ['long name '.repeat(15)]: n }));
      await apply(
        identity('merge', { merge: by({ external_id: `jane-${n}` }), keep: by({ external_id: 'jane' }) }),
      );
    }
    expect((await textOf('jane'))!.length).toBeLessThanOrEqual(1024);
    expect((await namesOf('jane'))[0]).toEqual(['plan']);
  });

  test('are gone with a deleted user, and a new user with the identifier begins without any', async () => {
    await apply(set('kate', { plan: 'free' }));
    await apply(identity('delete', { user: by({ external_id: 'kate' }) }));
    await apply(event('kate'));
    expect(await textOf('kate')).toBeNull();
  });

  test('keep the id of the object if the request is older, as a run of a sync is', async () => {
    const delivery = deliver(workspace, [set('lena', { plan: 'free' })]);
    delivery.envelope.requests![0]!.request_id = '018f0000-0000-7000-8000-000000000000';
    await applyBatch(pool, [delivery]);
    const [change] = readAttributeChanges((await textOf('lena'))!);
    expect(change!.requestId).toBeUndefined();
    expect(Math.abs(change!.at.getTime() - Date.now())).toBeLessThan(60_000);
  });

  test('become a dead letter with the name of the attribute if their form is unknown', async () => {
    const delivery = deliver(workspace, [attributes('mara', { change: { points: 100 as never } })]);
    expect(await applyBatch(pool, [delivery])).toMatchObject({ kind: 'applied' });
    const { rows } = await pool.query('select reason from dead_letters where workspace_id = $1', [
      workspace.id,
    ]);
    expect(rows).toEqual([
      { reason: "'change.points' is not valid: must be an object with 'inc', 'array', 'merge' or 'objects'" },
    ]);
  });
});
