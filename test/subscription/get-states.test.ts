import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { subscriptionGroupsGet } from '../../src/operations/subscription.groups.get.ts';
import { subscriptionStatusGet } from '../../src/operations/subscription.status.get.ts';
import { user } from '../identity/objects.ts';
import { has } from '../identity/scene.ts';
import { createGroup, createWorkspace } from '../setup/workspace.ts';
import { createSubscriptionScene, email, phones, type SubscriptionScene, says } from './scene.ts';

let scene: SubscriptionScene;
beforeAll(async () => {
  scene = await createSubscriptionScene();
  const { news, texts } = scene.groups;
  await scene.apply([
    has('ada', { standard: { email: 'ada@x.com', phone: phones(1), phone_valid: true } }),
    says(user('ada'), news, 'subscribed'),
    says(user('ada'), texts, 'unsubscribed'),
    has('eve', { standard: { email: 'ada@x.com' } }),
    has('bob', {}),
    email('bob@x.com', { state: 'unsubscribed' }),
  ]);
});
afterAll(() => scene.stop());

const both = 'Either an email address or a phone number should be provided, but not both.';

describe('/subscription/status/get', () => {
  const refused = async (query: string) => {
    const { status, body } = await scene.get(subscriptionStatusGet(), query);
    expect(status).toBe(400);
    return body.message;
  };

  test('returns Subscribed, Unsubscribed, or Unknown for unknown users and unset states', async () => {
    const { news, texts } = scene.groups;
    expect(await scene.status(news, 'external_id=ada&external_id=bob&external_id=nobody')).toEqual({
      ada: 'Subscribed',
      bob: 'Unknown',
      nobody: 'Unknown',
    });
    expect(await scene.status(texts, 'external_id[]=ada&external_id[]=eve')).toEqual({
      ada: 'Unsubscribed',
      eve: 'Unknown',
    });
  });

  test.each([
    'external_id=ada',
    'external_id[]=ada',
    'external_id[0]=ada',
    'external_id=ada&external_id=ada',
  ])('accepts %s', async (query) => {
    expect(await scene.status(scene.groups.news, query)).toEqual({ ada: 'Subscribed' });
  });

  test('accepts 50 ids in each form of the list, and answers 51 with 400', async () => {
    for (const name of ['external_id', 'external_id[]']) {
      const list = (count: number) =>
        Array.from({ length: count }, (_, index) => `${name}=u${index}`).join('&');
      expect(Object.keys(await scene.status(scene.groups.news, list(50)))).toHaveLength(50);
      expect(await refused(`subscription_group_id=${scene.groups.news}&${list(51)}`)).toBe(
        'The max number of ids per request was exceeded',
      );
    }
  });

  test('finds states by email and by phone, keyed as they were sent', async () => {
    const { news, texts } = scene.groups;
    expect(await scene.status(news, 'email=Ada@x.com&email=other@x.com')).toEqual({
      'Ada@x.com': 'Subscribed',
      'other@x.com': 'Unknown',
    });
    expect(await scene.status(texts, `phone=${encodeURIComponent(phones(1))}`)).toEqual({
      [phones(1)]: 'Unsubscribed',
    });
  });

  test('reads a + that was not encoded as a +, and answers with that address', async () => {
    const { news, texts } = scene.groups;
    await scene.apply([says({ email: 'a+b@x.com' }, news, 'subscribed')]);
    expect(await scene.status(texts, `phone=${phones(1)}`)).toEqual({ [phones(1)]: 'Unsubscribed' });
    expect(await scene.status(news, 'email=A+b@x.com')).toEqual({ 'A+b@x.com': 'Subscribed' });
    expect(await scene.status(news, 'email=nobody+1@x.com')).toEqual({ 'nobody+1@x.com': 'Unknown' });
    expect(await scene.status(texts, 'phone=+1')).toEqual({ '+1': 'Unknown' });
    // Both spellings are the same address.
    expect(await scene.status(news, 'email=a+b@x.com&email=a%2Bb@x.com')).toEqual({
      'a+b@x.com': 'Subscribed',
    });
  });

  test('returns Unknown for an impossible address', async () => {
    expect(await scene.status(scene.groups.news, 'email=nonsense')).toEqual({ nonsense: 'Unknown' });
    expect(await scene.status(scene.groups.texts, 'phone=1')).toEqual({ 1: 'Unknown' });
  });

  test('prefers external ids to email and phone', async () => {
    const { news } = scene.groups;
    expect(await scene.status(news, 'external_id=ada&email=other@x.com')).toEqual({ ada: 'Subscribed' });
    expect(await scene.status(news, 'external_id=ada&email=other@x.com&phone=1')).toEqual({
      ada: 'Subscribed',
    });
  });

  test('rejects email and phone together with 400 and the words of the specification', async () => {
    expect(await refused(`subscription_group_id=${scene.groups.news}&email=a@x.com&phone=1`)).toBe(both);
  });

  test('omits the global state of an address', async () => {
    expect(await scene.status(scene.groups.news, 'email=bob@x.com')).toEqual({ 'bob@x.com': 'Unknown' });
  });

  test('ignores a user’s own state while the user has an address', async () => {
    const { news } = scene.groups;
    await scene.apply([has('own', {}), says(user('own'), news, 'unsubscribed')]);
    expect(await scene.status(news, 'external_id=own')).toEqual({ own: 'Unsubscribed' });
    await scene.apply([has('own', { standard: { email: 'own1@x.com' } })]);
    await scene.apply([has('own', { standard: { email: 'own2@x.com' } })]);
    expect(await scene.status(news, 'external_id=own')).toEqual({ own: 'Unknown' });
  });

  test('rejects an unknown, missing or foreign group with 400', async () => {
    const other = await createWorkspace(scene.pool, 'other');
    const foreign = await createGroup(scene.pool, other.id, 'email');
    for (const id of [uuidv7(), 'news', foreign]) {
      expect(await refused(`subscription_group_id=${id}&external_id=ada`)).toBe(
        'Invalid subscription group ID',
      );
    }
    expect(await refused('external_id=ada')).toBe("'subscription_group_id' is required");
  });

  test('accepts a group’s id in capitals', async () => {
    expect(await scene.status(scene.groups.news.toUpperCase(), 'external_id=ada')).toEqual({
      ada: 'Subscribed',
    });
  });

  test('rejects a query without users, or with addresses of another channel, with 400', async () => {
    const { news, texts, chat } = scene.groups;
    for (const query of ['', '&external_id=', '&email[]=&phone=']) {
      expect(await refused(`subscription_group_id=${news}${query}`)).toBe(
        "'external_id', 'email' or 'phone' is required",
      );
    }
    expect(await refused(`subscription_group_id=${news}&phone=1`)).toBe(
      "'phone' is not valid: an email group takes 'external_id' or 'email'",
    );
    for (const group of [texts, chat]) {
      expect(await refused(`subscription_group_id=${group}&email=a@x.com`)).toContain("'email' is not valid");
    }
  });

  test('accepts names of JavaScript properties as ids', async () => {
    expect(
      Object.entries(await scene.status(scene.groups.news, 'external_id=__proto__&external_id=constructor')),
    ).toEqual([
      ['__proto__', 'Unknown'],
      ['constructor', 'Unknown'],
    ]);
  });
});

describe('/subscription/user/status', () => {
  const runQuery = async (query: string) => (await scene.get(subscriptionGroupsGet(), query)).body;
  const ada = () => ({
    email: 'ada@x.com',
    phone: phones(1),
    external_id: 'ada',
    subscription_groups: [
      { id: scene.groups.news, name: 'news', channel: 'email', status: 'Subscribed' },
      { id: scene.groups.texts, name: 'texts', channel: 'sms', status: 'Unsubscribed' },
    ],
  });

  test('lists all groups of a user that have a state', async () => {
    expect(await runQuery('external_id=ada')).toEqual({ users: [ada()], total_count: 1, message: 'success' });
    expect(await runQuery('external_id=bob')).toEqual({
      users: [{ email: null, phone: null, external_id: 'bob', subscription_groups: [] }],
      total_count: 1,
      message: 'success',
    });
  });

  test('lists all users of an email or a phone', async () => {
    const { users, total_count } = await runQuery('email=ada@x.com');
    expect(total_count).toBe(2);
    expect(users.map(({ external_id }: { external_id: string }) => external_id).sort()).toEqual([
      'ada',
      'eve',
    ]);
    expect((await runQuery(`phone=${phones(1)}`)).users).toEqual([ada()]);
  });

  test('returns an empty list for an unknown user', async () => {
    expect(await runQuery('external_id=nobody&email=ada@x.com')).toEqual({
      users: [],
      total_count: 0,
      message: 'success',
    });
    for (const query of ['email=nonsense', 'external_id=', 'external_id[]=&email=', 'phone=']) {
      expect(await runQuery(query)).toEqual({ users: [], total_count: 0, message: 'success' });
    }
    expect(await runQuery('external_id=&email=ada@x.com')).toMatchObject({ total_count: 2 });
  });

  test('returns pages', async () => {
    const list = 'external_id=ada&external_id=nobody&external_id=bob&external_id=eve';
    const page = async (query: string) => {
      const { users, total_count } = await runQuery(`${list}&${query}`);
      return [total_count, ...users.map(({ external_id }: { external_id: string }) => external_id)];
    };
    expect(await page('')).toEqual([3, 'ada', 'bob', 'eve']);
    expect(await page('limit=2')).toEqual([3, 'ada', 'bob']);
    expect(await page('limit=2&offset=2')).toEqual([3, 'eve']);
    expect(await page('offset=3')).toEqual([3]);
  });

  test.each([
    ['email=a@x.com&phone=1', both],
    ['', "'external_id', 'email' or 'phone' is required"],
    ['external_id=ada&limit=101', "'limit' is not valid: it must be a whole number, 1 to 100"],
    ['external_id=ada&offset=x', "'offset' is not valid: it must be a whole number, 0 or more"],
  ])('answers %s with 400', async (query, message) => {
    expect(await scene.get(subscriptionGroupsGet(), query)).toEqual({ status: 400, body: { message } });
  });
});
