import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { alias, by, identity, merge, remove, user } from '../identity/objects.ts';
import { does, has } from '../identity/scene.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { deliver } from '../workers/batch.ts';
import { createSubscriptionScene, email, phones, type SubscriptionScene, says } from './scene.ts';

let scene: SubscriptionScene;
beforeAll(async () => {
  scene = await createSubscriptionScene();
});
afterAll(() => scene.stop());

const at = (address: string) => ({ standard: { email: address } });
const on = (phone: string) => ({ standard: { phone, phone_valid: true } });
const joins = (id: string) => ({
  subscription_groups: [{ subscription_group_id: id, subscription_state: 'subscribed' as const }],
});

/** Returns the group state and the global state of a user. */
async function states(external_id: string) {
  const result = await scene.user(external_id);
  return [result.subscription_groups?.[0]?.status, result.email_subscribe];
}

/** The result must be the same for one batch and for one batch per object. */
describe.each([
  ['in one batch', true],
  ['one by one', false],
])('state changes and track objects of the same identifier are applied in order, %s', (_, isOne) => {
  const name = (text: string) => `${text} ${isOne ? 'together' : 'apart'}`;
  const address = (text: string) => `${name(text).replaceAll(' ', '-')}@x.com`;
  async function run(...objects: AcceptedObject[]) {
    if (isOne) await scene.apply(objects);
    else for (const object of objects) await scene.apply([object]);
  }

  test('by external id: after the object that creates the user, before a conflicting one', async () => {
    const { news } = scene.groups;
    const ada = name('ada');
    await run(says(user(ada), news, 'unsubscribed'), has(ada, {}), says(user(ada), news, 'unsubscribed'));
    expect(await states(ada)).toEqual(['Unsubscribed', 'subscribed']);
    await run(has(ada, joins(news)), says(user(ada), news, 'unsubscribed'), has(ada, joins(news)));
    expect(await states(ada)).toEqual(['Subscribed', 'subscribed']);
  });

  test("by external id: a state is the user’s own before the address is set, then the address's", async () => {
    const { news } = scene.groups;
    const bob = name('bob');
    await run(
      has(bob, {}),
      says(user(bob), news, 'unsubscribed'),
      has(bob, at(address('bob1'))),
      has(bob, at(address('bob2'))),
      says(user(bob), news, 'subscribed'),
      has(name('bob two'), at(address('bob1'))),
    );
    expect(await states(bob)).toEqual(['Subscribed', 'subscribed']);
    expect(await states(name('bob two'))).toEqual(['Unsubscribed', 'subscribed']);
  });

  test('by email: the object that creates its first user, and the global state', async () => {
    const eve = address('eve');
    await run(
      email(eve, { state: 'unsubscribed' }),
      has({ email: eve }, { set: { n: 1 } }),
      has({ email: eve }, { email_subscribe: 'opted_in' }),
      email(eve, { state: 'unsubscribed' }),
    );
    expect((await scene.exported({ email_address: eve })).email_subscribe).toBe('unsubscribed');
    await run(email(eve, { state: 'unsubscribed' }), has({ email: eve }, { email_subscribe: 'opted_in' }));
    expect((await scene.exported({ email_address: eve })).email_subscribe).toBe('opted_in');
  });

  test('a first address that was unsubscribed keeps that state, whatever its user had', async () => {
    const gone = address('gone');
    await run(
      email(gone, { state: 'unsubscribed', hard_bounced: true }),
      has(name('gone'), { email_subscribe: 'opted_in' }),
      has(name('gone'), at(gone)),
    );
    expect(await scene.user(name('gone'))).toMatchObject({
      email_subscribe: 'unsubscribed',
      email_hard_bounced_at: expect.any(String),
    });
  });

  test('a first address that only bounced takes the state of its user', async () => {
    const bounced = address('bounced');
    await run(
      email(bounced, { hard_bounced: true }),
      has(name('bounced'), { email_subscribe: 'unsubscribed' }),
      has(name('bounced'), at(bounced)),
    );
    expect((await scene.user(name('bounced'))).email_subscribe).toBe('unsubscribed');
  });

  test("by phone: states go to the user's new number, and to the old number by its own value", async () => {
    const { texts } = scene.groups;
    const [from, to] = [phones(isOne ? 100 : 110), phones(isOne ? 101 : 111)];
    await run(
      has(name('mover'), on(from)),
      says({ phone: from }, texts, 'unsubscribed'),
      has(name('mover'), on(to)),
      says({ phone: from }, texts, 'subscribed'),
      has(name('stays'), on(from)),
    );
    expect(await states(name('mover'))).toEqual(['Unsubscribed', 'subscribed']);
    expect(await states(name('stays'))).toEqual(['Subscribed', 'subscribed']);
  });

  test('the spam mark is cleared for the users that have the address at that moment', async () => {
    const spam = address('spam');
    const marked = { marked_email_as_spam_at: '2026-01-01T00:00:00.000Z' };
    const marks = async () =>
      Promise.all(
        ['left', 'stayed', 'came', 'later'].map(
          async (who) => (await scene.user(name(who)))?.marked_email_as_spam_at !== undefined,
        ),
      );
    await run(
      has(name('left'), { standard: { email: spam, ...marked } }),
      has(name('stayed'), { standard: { email: spam, ...marked } }),
      has(name('came'), { standard: marked }),
      has(name('left'), at(address('elsewhere'))),
      has(name('came'), at(spam)),
      email(spam, { marked_as_spam: false }),
      has(name('later'), { standard: { email: spam, ...marked } }),
    );
    expect(await marks()).toEqual([true, false, false, true]);
    await run(
      has(name('stayed'), { standard: marked }),
      email(spam, { marked_as_spam: false }),
      does(name('stayed')),
    );
    expect(await marks()).toEqual([true, false, false, false]);
  });

  test('deleting the last user of an address removes its earlier states only', async () => {
    const { news, texts } = scene.groups;
    const [last, number] = [address('last'), phones(isOne ? 120 : 130)];
    await run(
      has(name('last'), { standard: { email: last, phone: number, phone_valid: true } }),
      says({ email: last }, news, 'unsubscribed'),
      says({ email: last }, scene.groups.offers, 'unsubscribed'),
      email(last, { state: 'unsubscribed', hard_bounced: true }),
      remove(name('last')),
      says({ email: last }, news, 'subscribed'),
      says({ phone: number }, texts, 'unsubscribed'),
      email(last, { state: 'opted_in' }),
      has(name('heir'), { standard: { email: last, phone: number, phone_valid: true } }),
    );
    const heir = await scene.user(name('heir'));
    expect(heir.email_hard_bounced_at).toBeUndefined();
    expect(heir.email_subscribe).toBe('opted_in');
    expect(
      heir.subscription_groups.map(({ name: group, status }: Record<string, string>) => [group, status]),
    ).toEqual([
      ['news', 'Subscribed'],
      ['texts', 'Unsubscribed'],
    ]);
  });

  test('a global state set directly after the last user of the address is deleted is kept', async () => {
    const heirless = address('heirless');
    await run(
      has(name('heirless'), { ...at(heirless), email_subscribe: 'opted_in' }),
      remove(name('heirless')),
      email(heirless, { state: 'unsubscribed' }),
    );
    await run(has(name('heir two'), at(heirless)));
    expect((await scene.user(name('heir two'))).email_subscribe).toBe('unsubscribed');
  });

  test('a merge: the kept user has the states of the address that it takes over', async () => {
    const { news } = scene.groups;
    await run(
      has(name('merged'), at(address('merged'))),
      says(user(name('merged')), news, 'unsubscribed'),
      has(name('kept'), {}),
      says(user(name('kept')), news, 'subscribed'),
      merge(name('merged'), name('kept')),
      says(user(name('merged')), news, 'subscribed'),
    );
    expect(await states(name('kept'))).toEqual(['Unsubscribed', 'subscribed']);
    await run(says(user(name('kept')), news, 'subscribed'));
    expect(await states(name('kept'))).toEqual(['Subscribed', 'subscribed']);
  });

  test('an identify: the user is found by the new external id afterwards', async () => {
    const { news } = scene.groups;
    const label = alias(`l:${name('anon')}`);
    await run(
      has(label, at(address('anon'))),
      says(user(name('anon')), news, 'subscribed'),
      identity('identify', { user: by(label), external_id: name('anon') }),
      says(user(name('anon')), news, 'unsubscribed'),
    );
    expect(await states(name('anon'))).toEqual(['Unsubscribed', 'subscribed']);
  });
});

test('G2: an envelope that is delivered twice sets and counts each state once', async () => {
  const { news } = scene.groups;
  const twice = 'twice@x.com';
  const first = deliver({ id: scene.workspaceId }, [
    says({ email: twice }, news, 'subscribed'),
    email(twice, { state: 'unsubscribed', hard_bounced: true }),
  ]);
  const counted = async () =>
    (
      await scene.rows('select sum(subscriptions)::int as n from usage where workspace_id = $1', [
        scene.workspaceId,
      ])
    )[0].n;
  expect(await applyBatch(scene.pool, [first])).toMatchObject({ kind: 'applied', objects: 2 });
  const second = deliver({ id: scene.workspaceId }, [says({ email: twice }, news, 'unsubscribed')]);
  await applyBatch(scene.pool, [second]);
  expect(await counted()).toBe(3);
  expect(await applyBatch(scene.pool, [first])).toEqual({ kind: 'skipped' });
  expect(await counted()).toBe(3);
  expect(await scene.status(news, `email=${twice}`)).toEqual({ [twice]: 'Unsubscribed' });
  expect(await scene.history(twice)).toHaveLength(4);
});

test.each([
  ['a group that is not there', says({ email: 'dead@x.com' }, crypto.randomUUID(), 'subscribed')],
  ['a phone and a group of emails', () => says({ phone: phones(1) }, scene.groups.news, 'subscribed')],
  ['an email and a group of SMS', () => says({ email: 'dead@x.com' }, scene.groups.texts, 'subscribed')],
])('G4: %s becomes a dead letter, and its neighbours are applied', async (kind, made) => {
  const object = typeof made === 'function' ? made() : made;
  const good = `${kind.replaceAll(' ', '-').toLowerCase()}@x.com`;
  const { refused } = await scene.apply([object, says({ email: good }, scene.groups.news, 'subscribed')]);
  expect(refused.map(({ item }) => item.object.id)).toEqual([object.id]);
  expect(await scene.deadLetters([object.id])).toEqual([object.id]);
  expect(await scene.status(scene.groups.news, `email=${good}`)).toEqual({ [good]: 'Subscribed' });
});

test.each([
  ['the state', 0],
  ['the phone', 1],
])('an opt-out survives a new phone that is set in another lane: %s first', async (name, position) => {
  const { texts } = scene.groups;
  const [from, to] = [phones(140 + position), phones(150 + position)];
  await scene.apply([has(name, on(from)), says(user(name), texts, 'subscribed')]);
  const objects = [says(user(name), texts, 'unsubscribed'), has(name, on(to))];
  await scene.inTwoLanes({ object: objects[position]! }, { object: objects[1 - position]! });
  expect(await states(name)).toEqual(['Unsubscribed', 'subscribed']);
});
