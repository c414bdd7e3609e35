import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import type { Json } from '../../src/profile/json.ts';
import { has } from '../identity/scene.ts';
import { createSubscriptionScene, phones, type SubscriptionScene } from './scene.ts';

let scene: SubscriptionScene;
beforeAll(async () => {
  scene = await createSubscriptionScene();
});
afterAll(() => scene.stop());

const success = { status: 201, body: { message: 'success' } };
const person = (external_id: string, index: number) =>
  has(external_id, {
    standard: { email: `${external_id}@x.com`, phone: phones(index), phone_valid: true },
  });

/** Both forms of the endpoint, called with the body of the first form. */
const forms = [
  ['/subscription/status/set', (body: Record<string, Json>) => scene.set(body)],
  ['/v2/subscription/status/set', (body: Record<string, Json>) => scene.setAll([body])],
] as const;

describe.each(forms)('%s', (form, set) => {
  const isV2 = form.startsWith('/v2');
  const setting = (group: keyof SubscriptionScene['groups'], subscription_state: Json, who: object) =>
    set({ subscription_group_id: scene.groups[group], subscription_state, ...who });
  /** Returns a name that is unique to this form. */
  const name = (text: string) => `${isV2 ? 'v2' : 'v1'}${text}`;

  test('sets a user by external id, whichever channel the group has', async () => {
    const ada = name('ada');
    await scene.apply([person(ada, isV2 ? 1 : 2)]);
    for (const group of ['news', 'texts', 'chat'] as const) {
      expect(await setting(group, 'subscribed', { external_id: [ada] })).toEqual(success);
      expect(await scene.status(scene.groups[group], `external_id=${ada}`)).toEqual({ [ada]: 'Subscribed' });
      expect(await setting(group, 'unsubscribed', { external_ids: ada })).toEqual(success);
      expect(await scene.status(scene.groups[group], `external_id=${ada}`)).toEqual({
        [ada]: 'Unsubscribed',
      });
    }
    expect(await scene.status(scene.groups.news, `email=${ada}@x.com`)).toEqual({
      [`${ada}@x.com`]: 'Unsubscribed',
    });
  });

  test('updates all users of an email, also if the request names one of them', async () => {
    const people = ['a', 'b', 'c'].map((letter) => name(`share${letter}`));
    const address = name('shared@x.com');
    await scene.apply(people.map((user) => has(user, { standard: { email: address } })));
    const all = people.map((user) => `external_id[]=${user}`).join('&');
    await setting('news', 'subscribed', { email: address });
    expect(new Set(Object.values(await scene.status(scene.groups.news, all)))).toEqual(
      new Set(['Subscribed']),
    );
    await setting('news', 'unsubscribed', { external_id: people[1]! });
    expect(await scene.status(scene.groups.news, all)).toEqual(
      Object.fromEntries(people.map((user) => [user, 'Unsubscribed'])),
    );
  });

  test.each(['texts', 'chat'] as const)('updates all users of a phone: %s', async (group) => {
    const people = ['a', 'b'].map((letter) => name(`${group}${letter}`));
    const phone = phones((isV2 ? 10 : 20) + group.length);
    await scene.apply(people.map((user) => has(user, { standard: { phone, phone_valid: true } })));
    await setting(group, 'subscribed', { phone: [phone] });
    for (const user of people) {
      expect(await scene.status(scene.groups[group], `external_id=${user}`)).toEqual({
        [user]: 'Subscribed',
      });
    }
    await setting(group, 'unsubscribed', { external_id: people[0]! });
    expect(await scene.status(scene.groups[group], `phone=${encodeURIComponent(phone)}`)).toEqual({
      [phone]: 'Unsubscribed',
    });
  });

  test('keeps the state of an unused email, and applies it to its first user', async () => {
    const address = name('orphan@x.com');
    await setting('news', 'unsubscribed', { email: [address.toUpperCase()] });
    expect(await scene.status(scene.groups.news, `email=${address}`)).toEqual({ [address]: 'Unsubscribed' });
    await scene.apply([has(name('taker'), {}), has(name('taker'), { standard: { email: address } })]);
    expect(await scene.status(scene.groups.news, `external_id=${name('taker')}`)).toEqual({
      [name('taker')]: 'Unsubscribed',
    });
    await scene.apply([has({ email: address }, { set: { n: 1 } })]);
    expect(await scene.exported({ email_address: address })).toMatchObject({
      subscription_groups: [{ id: scene.groups.news, status: 'Unsubscribed' }],
    });
  });

  test("keeps the state of an unused phone, which takes precedence over its user's states", async () => {
    const [own, orphan] = [phones(isV2 ? 40 : 50), phones(isV2 ? 41 : 51)];
    await setting('texts', 'unsubscribed', { phone: orphan });
    await scene.apply([has(name('mover'), { standard: { phone: own, phone_valid: true } })]);
    await setting('texts', 'subscribed', { external_id: name('mover') });
    await scene.apply([has(name('mover'), { standard: { phone: orphan, phone_valid: true } })]);
    expect(await scene.status(scene.groups.texts, `external_id=${name('mover')}`)).toEqual({
      [name('mover')]: 'Unsubscribed',
    });
  });

  test('gives a user without such an address an own state, which the first address takes over', async () => {
    const bare = name('bare');
    await scene.apply([has(bare, {})]);
    await setting('news', 'unsubscribed', { external_id: bare });
    await setting('texts', 'subscribed', { external_id: bare });
    expect(await scene.status(scene.groups.news, `external_id=${bare}`)).toEqual({ [bare]: 'Unsubscribed' });
    await scene.apply([person(bare, isV2 ? 60 : 61)]);
    expect(await scene.status(scene.groups.news, `email=${bare}@x.com`)).toEqual({
      [`${bare}@x.com`]: 'Unsubscribed',
    });
    expect(await scene.status(scene.groups.texts, `external_id=${bare}`)).toEqual({ [bare]: 'Subscribed' });
  });

  test('accepts an unknown external id without creating a user', async () => {
    expect(await setting('news', 'subscribed', { external_id: name('nobody') })).toEqual(success);
    expect(await scene.user(name('nobody'))).toBeUndefined();
    expect(await scene.rows('select from dead_letters where workspace_id = $1', [scene.workspaceId])).toEqual(
      [],
    );
  });

  test('finds the user by a deprecated external id', async () => {
    await scene.apply([
      has(name('old'), {}),
      {
        ...{ kind: 'external_id_rename', id: newId(), index: 0 },
        ...{ current_external_id: name('old'), new_external_id: name('new') },
      },
    ]);
    await setting('news', 'subscribed', { external_id: name('old') });
    expect(
      await scene.status(scene.groups.news, `external_id=${name('old')}&external_id=${name('new')}`),
    ).toEqual({
      [name('old')]: 'Subscribed',
      [name('new')]: 'Subscribed',
    });
  });

  test('leaves an archived group unchanged', async () => {
    expect(await setting('archived', 'subscribed', { email: name('arch@x.com') })).toEqual(success);
    expect(await scene.status(scene.groups.archived, `email=${name('arch@x.com')}`)).toEqual({
      [name('arch@x.com')]: 'Unknown',
    });
  });

  test('rejects email and phone together with 400, and applies neither', async () => {
    const message = 'Either an email address or a phone number should be provided, but not both.';
    const answer = await setting('news', 'subscribed', { email: name('both@x.com'), phone: [phones(1)] });
    expect(answer).toMatchObject({ status: 400, body: { message } });
    expect(await scene.status(scene.groups.news, `email=${name('both@x.com')}`)).toEqual({
      [name('both@x.com')]: 'Unknown',
    });
  });

  test('ignores an empty list or text next to the other', async () => {
    expect(await setting('news', 'subscribed', { email: [name('one@x.com')], phone: [] })).toEqual(success);
    expect(
      await setting('news', 'subscribed', { email: name('one@x.com'), phone: '', external_id: null }),
    ).toEqual(success);
  });

  test.each(['018f0000-0000-7000-8000-000000000000', 'news', 7])(
    'answers an unknown group, %j, with 400',
    async (id) => {
      const answer = await set({
        subscription_group_id: id,
        subscription_state: 'subscribed',
        email: 'a@x.com',
      });
      expect(answer).toMatchObject({ status: 400, body: { message: 'Invalid subscription group ID' } });
    },
  );

  test.each([
    ['no group', { subscription_group_id: undefined }, "'subscription_group_id' is required"],
    ['no state', { subscription_state: undefined }, "'subscription_state' is required"],
    [
      'another state',
      { subscription_state: 'opted_in' },
      "'subscription_state' must be 'subscribed' or 'unsubscribed'",
    ],
    ['no array', { email: { a: 1 } }, "'email' is not valid: it must be an array of strings"],
    ['too many', { email: Array(51).fill('a@x.com') }, 'The max number of ids per request was exceeded'],
  ])('%s: 400 with that reason', async (_, change, message) => {
    const answer = await setting('news', 'subscribed', { email: 'a@x.com', ...change });
    expect(answer).toMatchObject({ status: 400, body: { message } });
  });

  test('rejects a request without users with 400', async () => {
    const answer = await setting('news', 'subscribed', { email: [] });
    const names = isV2 ? "'external_ids', 'emails' or 'phones'" : "'external_id', 'email' or 'phone'";
    expect(answer).toMatchObject({ status: 400, body: { message: `${names} is required` } });
  });

  test.for([
    ['news', 'phone', phones(1), "an email group takes 'external_id' or 'email'"],
    ['texts', 'email', 'a@x.com', "an SMS group takes 'external_id' or 'phone'"],
    ['chat', 'email', 'a@x.com', "a WhatsApp group takes 'external_id' or 'phone'"],
  ] as const)('a %s group rejects a %s with 400', async ([group, kind, value, rule]) => {
    const answer = await setting(group, 'subscribed', { [kind]: value });
    expect(answer).toMatchObject({ status: 400, body: { message: `'${kind}' is not valid: ${rule}` } });
  });

  test('accepts 50 ids at once, as strings or one string', async () => {
    const emails = Array.from({ length: 50 }, (_, index) => name(`many${index}@x.com`));
    expect(await setting('offers', 'subscribed', { email: emails })).toEqual(success);
    const query = emails.map((address) => `email[]=${address}`).join('&');
    expect(await scene.status(scene.groups.offers, query)).toEqual(
      Object.fromEntries(emails.map((address) => [address, 'Subscribed'])),
    );
  });

  test('rejects an invalid element alone by its position, or with 400 if all are invalid', async () => {
    const good = name('good@x.com');
    const answer = await setting('news', 'subscribed', { email: [good, 'no address', 'a b@x.com'] });
    const text = "The value provided for the 'email' field is not a valid email.";
    expect(answer.status).toBe(201);
    expect(answer.body.errors).toEqual(
      isV2
        ? [1, 2].map((offset) => ({
            type: `email[${offset}]: ${text}`,
            input_array: 'subscription_groups',
            index: 0,
          }))
        : [1, 2].map((index) => ({ type: text, input_array: 'email', index })),
    );
    expect(await scene.status(scene.groups.news, `email=${good}`)).toEqual({ [good]: 'Subscribed' });
    const none = await setting('news', 'subscribed', { external_id: ['blocked'] });
    expect(none.status).toBe(400);
    expect(none.body.errors[0].type).toContain('provided external_id is blacklisted and disallowed');
  });

  test('rejects an SMS subscription with double opt-in, because no message can be sent', async () => {
    const who = { phone: phones(70), use_double_opt_in_logic: true };
    const refused = await setting('texts', 'subscribed', who);
    expect(refused.status).toBe(400);
    expect(refused.body.message).toContain("'use_double_opt_in_logic' is not valid");
    expect(await setting('texts', 'unsubscribed', who)).toEqual(success);
    expect(await setting('texts', 'subscribed', { ...who, use_double_opt_in_logic: false })).toEqual(success);
  });
});

describe('/v2/subscription/status/set', () => {
  test('accepts different kinds in different elements, of which the last one holds', async () => {
    await scene.apply([person('mix', 80)]);
    const answer = await scene.setAll([
      { subscription_group_id: scene.groups.news, subscription_state: 'subscribed', external_ids: ['mix'] },
      { subscription_group_id: scene.groups.texts, subscription_state: 'unsubscribed', phones: [phones(80)] },
      { subscription_group_id: scene.groups.news, subscription_state: 'unsubscribed', emails: 'mix@x.com' },
    ]);
    expect(answer).toEqual(success);
    expect(await scene.status(scene.groups.news, 'external_id=mix')).toEqual({ mix: 'Unsubscribed' });
    expect(await scene.status(scene.groups.texts, 'external_id=mix')).toEqual({ mix: 'Unsubscribed' });
  });

  test('rejects the request because of an invalid element, named by its position', async () => {
    const good = {
      subscription_group_id: scene.groups.news,
      subscription_state: 'subscribed',
      emails: 'whole@x.com',
    };
    const bad = { ...good, subscription_group_id: newId() };
    const message = 'Invalid subscription group ID';
    expect(await scene.setAll([good, bad])).toEqual({
      status: 400,
      body: { message, errors: [{ type: message, input_array: 'subscription_groups', index: 1 }] },
    });
    expect(await scene.status(scene.groups.news, 'email=whole@x.com')).toEqual({ 'whole@x.com': 'Unknown' });
  });

  test.each([
    [[], "'subscription_groups' is not valid: it must not be empty"],
    ['news', "'subscription_groups' is not valid: it must be an array of objects"],
    [[7], "each element of 'subscription_groups' must be an object"],
    [Array(51).fill({}), 'The max number of subscription groups per request was exceeded'],
  ])('rejects an unusable array with 400', async (value, message) => {
    expect(await scene.setAll(value as Json)).toMatchObject({ status: 400, body: { message } });
  });
});
