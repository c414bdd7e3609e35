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

  test('Subscribed, Unsubscribed, and Unknown for who has said nothing and for nobody', async () => {
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
  ])('takes %s', async (query) => {
    expect(await scene.status(scene.groups.news, query)).toEqual({ ada: 'Subscribed' });
  });

  test('takes 50, each form of the list; 51: 400', async () => {
    for (const name of ['external_id', 'external_id[]']) {
      const list = (count: number) =>
        Array.from({ length: count }, (_, index) => `${name}=u${index}`).join('&');
      expect(Object.keys(await scene.status(scene.groups.news, list(50)))).toHaveLength(50);
      expect(await refused(`subscription_group_id=${scene.groups.news}&${list(51)}`)).toBe(
        'The max number of ids per request was exceeded',
      );
    }
  });

  test('by email and by phone, answered as sent', async () => {
    const { news, texts } = scene.groups;
    expect(await scene.status(news, 'email=Ada@x.com&email=other@x.com')).toEqual({
      'Ada@x.com': 'Subscribed',
      'other@x.com': 'Unknown',
    });
    expect(await scene.status(texts, `phone=${encodeURIComponent(phones(1))}`)).toEqual({
      [phones(1)]: 'Unsubscribed',
    });
  });

  test('a + that was not encoded is one, and the state is answered by the address that was meant', async () => {
    const { news, texts } = scene.groups;
    await scene.apply([says({ email: 'a+b@x.com' }, news, 'subscribed')]);
    expect(await scene.status(texts, `phone=${phones(1)}`)).toEqual({ [phones(1)]: 'Unsubscribed' });
    expect(await scene.status(news, 'email=A+b@x.com')).toEqual({ 'A+b@x.com': 'Subscribed' });
    expect(await scene.status(news, 'email=nobody+1@x.com')).toEqual({ 'nobody+1@x.com': 'Unknown' });
    expect(await scene.status(texts, 'phone=+1')).toEqual({ '+1': 'Unknown' });
    // Both ways to write it mean one address.
    expect(await scene.status(news, 'email=a+b@x.com&email=a%2Bb@x.com')).toEqual({
      'a+b@x.com': 'Subscribed',
    });
  });

  test('what can be nobody’s address is Unknown', async () => {
    expect(await scene.status(scene.groups.news, 'email=nonsense')).toEqual({ nonsense: 'Unknown' });
    expect(await scene.status(scene.groups.texts, 'phone=1')).toEqual({ 1: 'Unknown' });
  });

  test('external ids win over email and phone', async () => {
    const { news } = scene.groups;
    expect(await scene.status(news, 'external_id=ada&email=other@x.com')).toEqual({ ada: 'Subscribed' });
    expect(await scene.status(news, 'external_id=ada&email=other@x.com&phone=1')).toEqual({
      ada: 'Subscribed',
    });
  });

  test('email and phone together: 400 with the words of the specification', async () => {
    expect(await refused(`subscription_group_id=${scene.groups.news}&email=a@x.com&phone=1`)).toBe(both);
  });

  test('the global state of an address is not that of a group', async () => {
    expect(await scene.status(scene.groups.news, 'email=bob@x.com')).toEqual({ 'bob@x.com': 'Unknown' });
  });

  test('a user’s own state is not looked at while it has an address', async () => {
    const { news } = scene.groups;
    await scene.apply([has('own', {}), says(user('own'), news, 'unsubscribed')]);
    expect(await scene.status(news, 'external_id=own')).toEqual({ own: 'Unsubscribed' });
    await scene.apply([has('own', { standard: { email: 'own1@x.com' } })]);
    await scene.apply([has('own', { standard: { email: 'own2@x.com' } })]);
    expect(await scene.status(news, 'external_id=own')).toEqual({ own: 'Unknown' });
  });

  test('an unknown group, no group, and one of another workspace: 400', async () => {
    const other = await createWorkspace(scene.pool, 'other');
    const foreign = await createGroup(scene.pool, other.id, 'email');
    for (const id of [uuidv7(), 'news', foreign]) {
      expect(await refused(`subscription_group_id=${id}&external_id=ada`)).toBe(
        'Invalid subscription group ID',
      );
    }
    expect(await refused('external_id=ada')).toBe("'subscription_group_id' is required");
  });

  test('a group’s id in capitals is that group', async () => {
    expect(await scene.status(scene.groups.news.toUpperCase(), 'external_id=ada')).toEqual({
      ada: 'Subscribed',
    });
  });

  test('nobody asked for: 400, and an address that the group is not about: 400', async () => {
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

  test('names of the language do no harm', async () => {
    expect(
      Object.entries(await scene.status(scene.groups.news, 'external_id=__proto__&external_id=constructor')),
    ).toEqual([
      ['__proto__', 'Unknown'],
      ['constructor', 'Unknown'],
    ]);
  });
});

describe('/subscription/user/status', () => {
  const ask = async (query: string) => (await scene.get(subscriptionGroupsGet(), query)).body;
  const ada = () => ({
    email: 'ada@x.com',
    phone: phones(1),
    external_id: 'ada',
    subscription_groups: [
      { id: scene.groups.news, name: 'news', channel: 'email', status: 'Subscribed' },
      { id: scene.groups.texts, name: 'texts', channel: 'sms', status: 'Unsubscribed' },
    ],
  });

  test('all groups of a user for which something was said', async () => {
    expect(await ask('external_id=ada')).toEqual({ users: [ada()], total_count: 1, message: 'success' });
    expect(await ask('external_id=bob')).toEqual({
      users: [{ email: null, phone: null, external_id: 'bob', subscription_groups: [] }],
      total_count: 1,
      message: 'success',
    });
  });

  test('everyone on an email or a phone', async () => {
    const { users, total_count } = await ask('email=ada@x.com');
    expect(total_count).toBe(2);
    expect(users.map(({ external_id }: { external_id: string }) => external_id).sort()).toEqual([
      'ada',
      'eve',
    ]);
    expect((await ask(`phone=${phones(1)}`)).users).toEqual([ada()]);
  });

  test('nobody is an empty list', async () => {
    expect(await ask('external_id=nobody&email=ada@x.com')).toEqual({
      users: [],
      total_count: 0,
      message: 'success',
    });
    for (const query of ['email=nonsense', 'external_id=', 'external_id[]=&email=', 'phone=']) {
      expect(await ask(query)).toEqual({ users: [], total_count: 0, message: 'success' });
    }
    expect(await ask('external_id=&email=ada@x.com')).toMatchObject({ total_count: 2 });
  });

  test('page by page', async () => {
    const list = 'external_id=ada&external_id=nobody&external_id=bob&external_id=eve';
    const page = async (query: string) => {
      const { users, total_count } = await ask(`${list}&${query}`);
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
  ])('%s: 400', async (query, message) => {
    expect(await scene.get(subscriptionGroupsGet(), query)).toEqual({ status: 400, body: { message } });
  });
});
