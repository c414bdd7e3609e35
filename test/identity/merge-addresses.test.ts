import { afterAll, beforeAll, describe, expect, it, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import type { Prioritization } from '../../src/profile/identifier.ts';
import { createGroup } from '../setup/workspace.ts';
import { alias, by, identity, merge, user } from './objects.ts';
import { createScene, does, has, type Scene } from './scene.ts';

let scene: Scene;
beforeAll(async () => {
  scene = await createScene();
});
afterAll(() => scene.stop());

/** Gives users an address in this order, each in a separate batch; a name with a colon is an alias. */
async function share(address: object, names: string[]): Promise<void> {
  for (const name of names) {
    const identifier = name.includes(':') ? alias(name) : user(name);
    await scene.apply([has(identifier, { standard: address })]);
  }
}

/** Returns the names that no longer resolve. */
async function gone(names: string[]): Promise<string[]> {
  const result = await Promise.all(
    names.map((name) => (name.includes(':') ? scene.aliased(name) : scene.user(name))),
  );
  return names.filter((_, index) => !result[index]);
}

const kinds = [
  ['email', (name: string) => ({ email: `${name}@x.com` }), {}],
  ['phone', (name: string) => ({ phone: phoneOf(name) }), { phone_valid: true }],
] as const;

/** Returns a valid number for each name. */
const numbers = new Map<string, string>();
function phoneOf(name: string): string {
  if (!numbers.has(name)) numbers.set(name, `+4420718387${String(10 + numbers.size)}`);
  return numbers.get(name)!;
}

// Order of the last update: known 1, l:anonymous 1, known 2, l:anonymous 2
const choices: [Prioritization[], string | undefined][] = [
  [[], undefined],
  [['identified'], undefined],
  [['unidentified'], undefined],
  [['most_recently_updated'], 'anonymous 2'],
  [['least_recently_updated'], 'known 1'],
  [['identified', 'most_recently_updated'], 'known 2'],
  [['identified', 'least_recently_updated'], 'known 1'],
  [['unidentified', 'most_recently_updated'], 'anonymous 2'],
  [['unidentified', 'least_recently_updated'], 'anonymous 1'],
  [['most_recently_updated', 'identified'], undefined],
  [['most_recently_updated', 'unidentified'], 'anonymous 2'],
  [['least_recently_updated', 'identified'], 'known 1'],
  [['least_recently_updated', 'unidentified'], undefined],
];

describe.each(kinds)('a merge by %s', (kind, addressOf, validity) => {
  test.each(choices)('narrowed by %j selects %s', async (prioritization, expected) => {
    const name = `${kind}${prioritization.join('').replaceAll('_', '')}`;
    const [k1, a1, k2, a2] = [
      `${name} known 1`,
      `l:${name} anonymous 1`,
      `${name} known 2`,
      `l:${name} anonymous 2`,
    ];
    const all = [k1, a1, k2, a2];
    await share({ ...addressOf(name), ...validity }, all);
    await scene.apply([has(`${name} kept`, {})]);
    await scene.apply([
      identity('merge', {
        merge: by(addressOf(name), ...prioritization),
        keep: by(user(`${name} kept`)),
      }),
    ]);
    const chosen = expected && all.find((one) => one.endsWith(expected));
    // An alias moves to the kept user: it still resolves.
    if (chosen?.includes(':')) {
      expect((await scene.aliased(chosen)).external_id).toBe(`${name} kept`);
      expect(await gone(all)).toEqual([]);
    } else expect(await gone(all)).toEqual(chosen ? [chosen] : []);
  });

  it('can select the kept user too', async () => {
    const name = `keep${kind}`;
    await share({ ...addressOf(name), ...validity }, [`${name} 1`, `${name} 2`]);
    await scene.apply([has(`${name} merged`, { set: { from: 'merged' } })]);
    await scene.apply([
      identity('merge', {
        merge: by(user(`${name} merged`)),
        keep: by(addressOf(name), 'least_recently_updated'),
      }),
    ]);
    expect((await scene.user(`${name} 1`)).custom_attributes).toEqual({ from: 'merged' });
    expect((await scene.user(`${name} 2`)).custom_attributes).toBeUndefined();
  });

  it('is ignored when no user is left', async () => {
    const name = `none${kind}`;
    await share({ ...addressOf(name), ...validity }, [`${name} 1`]);
    const before = await scene.user(`${name} 1`);
    await scene.apply([
      identity('merge', { merge: by(addressOf(name), 'unidentified'), keep: by(user(`${name} 1`)) }),
      identity('merge', { merge: by(addressOf(`other${name}`)), keep: by(user(`${name} 1`)) }),
    ]);
    expect(await scene.user(`${name} 1`)).toEqual(before);
  });

  it('counts an event as an update, also an event of the same batch', async () => {
    const name = `recent${kind}`;
    const mergeLast = (): AcceptedObject =>
      identity('merge', {
        merge: by(addressOf(name), 'most_recently_updated'),
        keep: by(user(`${name} kept`)),
      });
    const all = [1, 2, 3].map((position) => `${name} ${position}`);
    await share({ ...addressOf(name), ...validity }, all);
    await scene.apply([
      has(`${name} kept`, { standard: { email: 'kept@y.com', phone: '+14155552671', phone_valid: true } }),
    ]);
    await scene.apply([does(`${name} 2`)]);
    await scene.apply([mergeLast()]);
    expect(await gone(all)).toEqual([`${name} 2`]);
    await scene.apply([does(`${name} 1`), mergeLast()]);
    expect(await gone(all)).toEqual([`${name} 1`, `${name} 2`]);
  });
});

describe('a merge keeps the states of addresses', () => {
  it('an address moved to the kept user keeps its own global state and its own group states', async () => {
    const group = await createGroup(scene.pool, scene.workspaceId, 'email', { name: 'taken' });
    const says = (state: 'subscribed' | 'unsubscribed') => ({
      email_subscribe: state,
      subscription_groups: [{ subscription_group_id: group, subscription_state: state }],
    });
    await scene.apply([
      has('state a', { standard: { email: 'state@x.com' } }),
      has('state a', says('unsubscribed')),
      has('state b', says('subscribed')),
    ]);
    await scene.apply([merge('state a', 'state b')]);
    expect(await scene.user('state b')).toMatchObject({
      email: 'state@x.com',
      email_subscribe: 'unsubscribed',
      subscription_groups: [{ id: group, status: 'Unsubscribed' }],
    });
  });

  it('a kept user with an address of its own keeps its states', async () => {
    await scene.apply([
      has('own a', { standard: { email: 'own-a@x.com' } }),
      has('own a', { email_subscribe: 'unsubscribed' }),
      has('own b', { standard: { email: 'own-b@x.com' } }),
    ]);
    await scene.apply([merge('own a', 'own b')]);
    expect(await scene.user('own b')).toMatchObject({ email: 'own-b@x.com', email_subscribe: 'subscribed' });
  });

  it('states that the merged user had without an address are dropped', async () => {
    const groups = await Promise.all(
      (['email', 'sms'] as const).map((channel) =>
        createGroup(scene.pool, scene.workspaceId, channel, { name: `lack ${channel}` }),
      ),
    );
    await scene.apply([
      has('lack a', {
        ...{ email_subscribe: 'unsubscribed', push_subscribe: 'unsubscribed' },
        subscription_groups: groups.map((subscription_group_id) => ({
          ...{ subscription_group_id, subscription_state: 'subscribed' as const },
        })),
      }),
      has('lack b', {}),
    ]);
    const a = await scene.profileId('lack a');
    await scene.apply([merge('lack a', 'lack b')]);
    const kept = await scene.user('lack b');
    expect(kept).toMatchObject({ email_subscribe: 'subscribed', push_subscribe: 'subscribed' });
    expect(kept.subscription_groups).toBeUndefined();
    expect(await scene.rows('select from subscription_states where subject = $1', [a])).toEqual([]);
  });

  it('an invalid phone number moves unchanged, and still identifies no user', async () => {
    await scene.apply([has('bad a', { standard: { phone: '1234', phone_valid: false } }), has('bad b', {})]);
    await scene.apply([merge('bad a', 'bad b')]);
    expect((await scene.user('bad b')).phone).toBe('1234');
    const [row] = await scene.rows("select phone_valid from profiles where external_id = 'bad b'");
    expect(row.phone_valid).toBe(false);
  });
});

describe('several merges in one batch', () => {
  const points = (external_id: string, points: number) =>
    has(external_id, { set: { [external_id]: points } });

  it('are applied along a chain', async () => {
    await scene.apply([
      ...['chain a', 'chain b', 'chain c'].flatMap((name) => [points(name, 1), does(name)]),
      merge('chain a', 'chain b'),
      merge('chain b', 'chain c'),
    ]);
    expect(await gone(['chain a', 'chain b'])).toEqual(['chain a', 'chain b']);
    expect(await scene.user('chain c')).toMatchObject({
      custom_attributes: { 'chain a': 1, 'chain b': 1, 'chain c': 1 },
      custom_events: [{ count: 3 }],
    });
  });

  it('there and back: the second one finds no user', async () => {
    await scene.apply([points('back a', 1), points('back b', 2)]);
    await scene.apply([merge('back a', 'back b'), merge('back b', 'back a')]);
    expect(await gone(['back a', 'back b'])).toEqual(['back a']);
  });

  it('into one user: the first one takes precedence, and sums include all', async () => {
    const names = ['many 1', 'many 2', 'many 3'];
    await scene.apply([
      has('many', {}),
      ...names.flatMap((name) => [has(name, { standard: { first_name: name } }), does(name)]),
    ]);
    await scene.apply(names.map((name) => merge(name, 'many')));
    expect(await scene.user('many')).toMatchObject({ first_name: 'many 1', custom_events: [{ count: 3 }] });
  });

  it('a change before a merge and one after it both count', async () => {
    const inc = (external_id: string, by: number) => has(external_id, { change: { points: { inc: by } } });
    await scene.apply([inc('inc a', 100), has('inc b', {})]);
    await scene.apply([inc('inc a', 10), merge('inc a', 'inc b'), inc('inc b', 1), inc('inc a', 5)]);
    expect((await scene.user('inc b')).custom_attributes).toEqual({ points: 111 });
    expect((await scene.user('inc a')).custom_attributes).toEqual({ points: 5 });
  });
});
