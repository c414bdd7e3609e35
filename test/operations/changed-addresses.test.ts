import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { createGroup } from '../setup/workspace.ts';
import { createStore, type Store } from './in-process.ts';

let store: Store;
let texts: string;
let chat: string;
let news: string;
beforeAll(async () => {
  store = await createStore();
  const { pool } = store.database;
  texts = await createGroup(pool, store.workspaceId, 'sms', { name: 'Texts' });
  chat = await createGroup(pool, store.workspaceId, 'whatsapp', { name: 'Chat' });
  news = await createGroup(pool, store.workspaceId, 'email', { name: 'News' });
});
afterAll(() => store.stop());

let numbers = 0;
/** Numbers and addresses that are not in use yet. */
const newPhone = () => `+44207183${numbers++ + 1000}`;
const newEmail = () => `new-${numbers++}@example.com`;

const joined = (id: string, subscription_state = 'subscribed') => ({
  subscription_groups: [{ subscription_group_id: id, subscription_state }],
});
const left = (id: string) => joined(id, 'unsubscribed');

/** Applies each object in a separate batch. */
async function one(...attributes: Parameters<Store['track']>[0][]) {
  for (const object of attributes) await store.track({ attributes: [object] });
}

/** Returns the states that a user reads: email, and groups by name. */
async function states(externalId: string) {
  const { body } = await store.exportIds({ external_ids: [externalId] });
  const { email_subscribe, subscription_groups = [] } = body.users[0];
  return {
    email: email_subscribe,
    ...Object.fromEntries(
      subscription_groups.map(({ name, status }: { name: string; status: string }) => [name, status]),
    ),
  };
}

describe('a changed phone number', () => {
  test("the new number takes over the user's group states, for all its users", async () => {
    const [old, fresh] = [newPhone(), newPhone()];
    await one(
      { external_id: 'taker', phone: old, ...left(texts) },
      { external_id: 'taker', ...joined(chat) },
      { external_id: 'taker', phone: fresh },
      { external_id: 'joins', phone: fresh },
    );
    for (const user of ['taker', 'joins']) {
      expect(await states(user)).toEqual({ email: 'subscribed', Texts: 'Unsubscribed', Chat: 'Subscribed' });
    }
  });

  test('if the number already exists, its existing states take precedence', async () => {
    const [old, taken] = [newPhone(), newPhone()];
    await one(
      { external_id: 'resident', phone: taken, ...left(texts) },
      { external_id: 'mover', phone: old, ...joined(texts) },
      { external_id: 'mover', ...joined(chat) },
      { external_id: 'mover', phone: taken },
    );
    for (const user of ['resident', 'mover']) {
      expect(await states(user)).toMatchObject({ Texts: 'Unsubscribed', Chat: 'Subscribed' });
    }
  });

  test('the old number keeps its states, for its other users and for a user who returns to it', async () => {
    const [old, fresh] = [newPhone(), newPhone()];
    await one(
      { external_id: 'stays', phone: old },
      { external_id: 'goes', phone: old, ...left(texts) },
      { external_id: 'goes', phone: fresh },
      { external_id: 'goes', ...joined(texts) },
    );
    expect([await states('stays'), await states('goes')]).toMatchObject([
      { Texts: 'Unsubscribed' },
      { Texts: 'Subscribed' },
    ]);
    await one({ external_id: 'goes', phone: old });
    expect(await states('goes')).toMatchObject({ Texts: 'Unsubscribed' });
  });

  test("a user's states without a number move to the first number", async () => {
    const phone = newPhone();
    await one(
      { external_id: 'first', ...left(texts) },
      { external_id: 'first', ...joined(news) },
      { external_id: 'first', phone },
      { external_id: 'second', phone },
    );
    expect(await states('first')).toMatchObject({ Texts: 'Unsubscribed', News: 'Subscribed' });
    expect(await states('second')).toEqual({ email: 'subscribed', Texts: 'Unsubscribed' });
    await one({ external_id: 'second', ...joined(texts) });
    expect(await states('first')).toMatchObject({ Texts: 'Subscribed' });
  });

  test.each([
    ['none', null],
    ['an invalid number', '1234'],
  ])(
    'a user with %s keeps the states of the last number, which move to the next number',
    async (kind, none) => {
      const external_id = `pause ${kind}`;
      await one(
        { external_id, ...joined(texts) },
        { external_id, phone: newPhone() },
        { external_id, ...left(texts) },
        { external_id, phone: none },
      );
      expect(await states(external_id)).toMatchObject({ Texts: 'Unsubscribed' });
      await one({ external_id, phone: newPhone() });
      expect(await states(external_id)).toMatchObject({ Texts: 'Unsubscribed' });
    },
  );

  test('is applied in order with the states that the same batch sets before and after it', async () => {
    const [old, fresh] = [newPhone(), newPhone()];
    await one({ external_id: 'batched', phone: old });
    await store.track({
      attributes: [
        { phone: old, ...joined(texts) },
        { phone: old, ...joined(chat) },
        { external_id: 'batched', phone: fresh },
        { phone: fresh, ...left(texts) },
        { external_id: 'after', phone: fresh },
        { external_id: 'remains', phone: old },
      ],
    });
    for (const user of ['batched', 'after']) {
      expect(await states(user)).toMatchObject({ Texts: 'Unsubscribed', Chat: 'Subscribed' });
    }
    expect(await states('remains')).toMatchObject({ Texts: 'Subscribed', Chat: 'Subscribed' });
  });
});

describe('a changed email address', () => {
  test('the state becomes subscribed, and group states are reset', async () => {
    await one(
      { external_id: 'fresh', email: newEmail(), email_subscribe: 'unsubscribed', ...joined(news) },
      { external_id: 'fresh', email: newEmail() },
    );
    expect(await states('fresh')).toEqual({ email: 'subscribed' });
  });

  test("unless the new address already exists: then that address's state applies", async () => {
    const [stated, unsaid] = [newEmail(), newEmail()];
    await one(
      { external_id: 'host-1', email: stated, email_subscribe: 'opted_in', ...left(news) },
      { external_id: 'host-2', email: unsaid },
      { external_id: 'guest-1', email_subscribe: 'unsubscribed', ...joined(news) },
      { external_id: 'guest-2', email_subscribe: 'unsubscribed', ...joined(news) },
      { external_id: 'guest-1', email: stated },
      { external_id: 'guest-2', email: unsaid },
    );
    for (const user of ['host-1', 'guest-1']) {
      expect(await states(user)).toEqual({ email: 'opted_in', News: 'Unsubscribed' });
    }
    for (const user of ['host-2', 'guest-2']) {
      expect(await states(user)).toEqual({ email: 'subscribed', News: 'Subscribed' });
    }
  });

  test('states set before the first address become the states of that address, for all its users', async () => {
    const email = newEmail();
    await one(
      { external_id: 'said', email_subscribe: 'unsubscribed', ...joined(news) },
      { external_id: 'said', email },
      { external_id: 'shares', email },
    );
    for (const user of ['said', 'shares']) {
      expect(await states(user)).toEqual({ email: 'unsubscribed', News: 'Subscribed' });
    }
  });

  test('states set before the first address do not return after it', async () => {
    await one(
      { external_id: 'once', email_subscribe: 'unsubscribed', ...joined(news) },
      { external_id: 'once', email: newEmail() },
      { external_id: 'once', email: null },
    );
    expect(await states('once')).toEqual({ email: 'subscribed' });
    await one({ external_id: 'once', email: newEmail() });
    expect(await states('once')).toEqual({ email: 'subscribed' });
  });
});

describe('the number of statements is the same for one and for many changed addresses in a batch', () => {
  type Objects = Parameters<Store['track']>[0][];

  const statementsOf = async (attributes: Objects) => {
    const client = await store.database.pool.connect();
    const { query } = client;
    let statements = 0;
    client.query = ((...given: Parameters<typeof query>) => {
      statements++;
      return query.apply(client, given);
    }) as typeof query;
    client.release();
    await store.track({ attributes });
    client.query = query;
    return statements;
  };
  const stored = async (external_id: string) => {
    await one({ external_id, phone: newPhone(), email_subscribe: 'unsubscribed', ...left(texts) });
    return external_id;
  };

  test.each<[string, (users: string[]) => Objects]>([
    [
      'users who are stored',
      (users) => users.map((external_id) => ({ external_id, phone: newPhone(), email: newEmail() })),
    ],
    [
      'users who are named by the address that they get',
      (users) =>
        users.flatMap((external_id) => {
          const email = newEmail();
          return [
            { external_id, email },
            { email, phone: newPhone() },
          ];
        }),
    ],
    [
      'users that the batch creates',
      (users) =>
        users.flatMap((user) => {
          const [external_id, email] = [`${user}-new`, newEmail()];
          return [
            { external_id, email_subscribe: 'unsubscribed', ...left(texts) },
            { external_id, phone: newPhone(), email },
            { email, phone: newPhone() },
          ];
        }),
    ],
    [
      'users that the batch creates and then names by address',
      (users) =>
        users.flatMap((user) => {
          const email = newEmail();
          return [
            { external_id: `${user}-new`, phone: newPhone(), email },
            { email, phone: newPhone() },
          ];
        }),
    ],
  ])('%s', async (kind, objects) => {
    const crowd: string[] = [];
    for (let index = 0; index < 20; index++) crowd.push(await stored(`${kind} ${index}`));
    const ofOne = await statementsOf(objects([await stored(`${kind} alone`)]));
    expect(ofOne).toBeGreaterThan(0);
    expect(await statementsOf(objects(crowd))).toBe(ofOne);
    expect(await states(crowd.at(-1)!)).toMatchObject({ Texts: 'Unsubscribed' });
  });
});

test('an import of push tokens writes the attributes to the profile of each new token', async () => {
  const token = (name: string) => ({ app_id: 'app', token: name, device_id: `device-${name}` });
  await store.track({
    attributes: [
      { push_token_import: true, push_tokens: [token('a')], country: 'DE', plan: 'pro', ...left(chat) },
    ],
  });
  await store.track({
    attributes: [{ push_token_import: true, push_tokens: [token('a'), token('b')], country: 'FR' }],
  });
  const read = async (device_id: string) => (await store.exportIds({ device_id })).body.users[0];
  expect(await read('device-a')).toMatchObject({
    country: 'DE',
    custom_attributes: { plan: 'pro' },
    subscription_groups: [{ id: chat, status: 'Unsubscribed' }],
  });
  expect(await read('device-b')).toMatchObject({ country: 'FR' });
});
