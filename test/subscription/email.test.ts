import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { emailBlacklist, emailBlocklist } from '../../src/operations/email.blocklist.ts';
import { emailBounceRemove } from '../../src/operations/email.bounce.remove.ts';
import { emailHardBounces } from '../../src/operations/email.hard_bounces.ts';
import { emailSpamRemove } from '../../src/operations/email.spam.remove.ts';
import { emailStatus } from '../../src/operations/email.status.ts';
import { emailUnsubscribe } from '../../src/operations/email.unsubscribe.ts';
import { has } from '../identity/scene.ts';
import { createSubscriptionScene, type SubscriptionScene } from './scene.ts';

let scene: SubscriptionScene;
beforeAll(async () => {
  scene = await createSubscriptionScene();
});
afterAll(() => scene.stop());

const success = { status: 201, body: { message: 'success' } };
const at = (email: string) => ({ standard: { email } });
const invalid = "The value provided for the 'email' field is not a valid email.";

describe('/email/status', () => {
  test.each(['subscribed', 'unsubscribed', 'opted_in'])(
    'sets %s for all users of the address',
    async (state) => {
      const address = `${state}@x.com`;
      await scene.apply([has(`${state} 1`, at(address)), has(`${state} 2`, at(address))]);
      expect(
        await scene.post(emailStatus(), { email: address.toUpperCase(), subscription_state: state }),
      ).toEqual(success);
      for (const user of [`${state} 1`, `${state} 2`])
        expect((await scene.user(user)).email_subscribe).toBe(state);
    },
  );

  test('keeps the state of an unused address, and applies it to its first user', async () => {
    const emails = ['orphan1@x.com', 'orphan2@x.com'];
    expect(await scene.post(emailStatus(), { email: emails, subscription_state: 'unsubscribed' })).toEqual(
      success,
    );
    await scene.apply([has('orphan', {}), has('orphan', at(emails[0]!)), has({ email: emails[1]! }, {})]);
    expect((await scene.user('orphan')).email_subscribe).toBe('unsubscribed');
    expect((await scene.exported({ email_address: emails[1]! })).email_subscribe).toBe('unsubscribed');
  });

  test.each([
    ['no state', { email: 'a@x.com' }, "'subscription_state' is required"],
    [
      'another state',
      { email: 'a@x.com', subscription_state: 'Subscribed' },
      "'subscription_state' must be 'subscribed', 'unsubscribed', or 'opted_in'",
    ],
    ['no address', { subscription_state: 'subscribed' }, "'email' is required"],
    [
      'an empty list',
      { email: [], subscription_state: 'subscribed' },
      "'email' is not valid: it must not be empty",
    ],
    [
      'an object',
      { email: {}, subscription_state: 'subscribed' },
      "'email' is not valid: it must be an array of strings",
    ],
    [
      'too many',
      { email: Array(51).fill('a@x.com'), subscription_state: 'subscribed' },
      'The max number of ids per request was exceeded',
    ],
    [
      'only invalid addresses',
      { email: ['a'], subscription_state: 'subscribed' },
      "Valid data must be provided in the 'email' field.",
    ],
  ])('%s: 400 with that reason', async (_, body, message) => {
    expect(await scene.post(emailStatus(), body)).toMatchObject({ status: 400, body: { message } });
  });

  test('an invalid address fails alone', async () => {
    const email = ['read@x.com', 'a b@x.com', 7];
    expect(await scene.post(emailStatus(), { email, subscription_state: 'opted_in' })).toEqual({
      status: 201,
      body: {
        message: 'success',
        errors: [1, 2].map((index) => ({ type: invalid, input_array: 'email', index })),
      },
    });
    expect((await scene.get(emailUnsubscribe(), 'email=read@x.com')).body.emails).toEqual([]);
    expect(await scene.history('read@x.com')).toEqual([['', null, 'opted_in', 'request']]);
  });
});

describe.each([emailBlocklist(), emailBlacklist()])('$path', (operation) => {
  const name = (text: string) => `${operation.id}-${text}@x.com`;

  test('unsubscribes and marks as hard bounce, also an unused address', async () => {
    const [held, orphan] = [name('held'), name('orphan')];
    await scene.apply([has(held, { ...at(held), email_subscribe: 'opted_in' })]);
    expect(await scene.post(operation, { email: [held, orphan] })).toEqual(success);
    expect(await scene.user(held)).toMatchObject({
      email_subscribe: 'unsubscribed',
      email_hard_bounced_at: expect.any(String),
    });
    for (const address of [held, orphan]) {
      expect((await scene.get(emailUnsubscribe(), `email=${address}`)).body.emails).toHaveLength(1);
      expect((await scene.get(emailHardBounces(), `email=${address}`)).body.emails).toHaveLength(1);
    }
  });

  test('/email/bounce/remove lifts the bounce only, and /email/status resets the state as well', async () => {
    const address = name('undone');
    await scene.apply([has(address, at(address))]);
    await scene.post(operation, { email: address });
    expect(await scene.post(emailBounceRemove(), { email: address })).toEqual(success);
    expect(await scene.user(address)).toMatchObject({ email_subscribe: 'unsubscribed' });
    expect((await scene.user(address)).email_hard_bounced_at).toBeUndefined();
    expect((await scene.get(emailHardBounces(), `email=${address}`)).body.emails).toEqual([]);
    await scene.post(emailStatus(), { email: address, subscription_state: 'subscribed' });
    expect((await scene.user(address)).email_subscribe).toBe('subscribed');
  });

  test('a changed address resets the user, and the old address keeps its bounce', async () => {
    const address = name('changed');
    await scene.apply([has(address, at(address))]);
    await scene.post(operation, { email: address });
    await scene.apply([has(address, at(name('other')))]);
    expect((await scene.user(address)).email_hard_bounced_at).toBeUndefined();
    expect((await scene.user(address)).email_subscribe).toBe('subscribed');
    expect((await scene.get(emailHardBounces(), `email=${address}`)).body.emails).toHaveLength(1);
  });

  test('keeps the times of the first call when it is repeated', async () => {
    const address = name('again');
    const times = async () =>
      (
        await scene.rows('select changed_at, hard_bounced_at from email_addresses where email = $1', [
          address,
        ])
      )[0];
    await scene.post(operation, { email: address });
    const first = await times();
    await scene.post(operation, { email: address });
    expect(await times()).toEqual(first);
  });
});

test('/email/bounce/remove of an address without a bounce has no effect', async () => {
  expect(await scene.post(emailBounceRemove(), { email: 'never@x.com' })).toEqual(success);
  expect(await scene.rows("select from email_addresses where email = 'never@x.com'")).toEqual([]);
});

test('/email/spam/remove clears the mark of all users of the address without updating them', async () => {
  const marked = { email: 'spam@x.com', marked_email_as_spam_at: '2026-01-02T00:00:00.000Z' };
  await scene.apply([has('spam 1', { standard: marked }), has('spam 2', { standard: marked })]);
  const updated = () => scene.rows("select updated_at from profiles where email = 'spam@x.com' order by id");
  const before = await updated();
  expect((await scene.user('spam 1')).marked_email_as_spam_at).toBe(marked.marked_email_as_spam_at);
  expect(await scene.post(emailSpamRemove(), { email: ['spam@x.com', 'other@x.com'] })).toEqual(success);
  for (const user of ['spam 1', 'spam 2'])
    expect((await scene.user(user)).marked_email_as_spam_at).toBeUndefined();
  expect(await updated()).toEqual(before);
});

describe.each([
  [emailUnsubscribe(), 'unsubscribed_at', '2024'],
  [emailHardBounces(), 'hard_bounced_at', '2025'],
] as const)('$path', (operation, since, year) => {
  const list = async (query: string) => (await scene.get(operation, query)).body;
  const refused = async (query: string) => {
    const { status, body } = await scene.get(operation, query);
    expect(status).toBe(400);
    return body.message;
  };
  const days = `start_date=${year}-03-01&end_date=${year}-03-04`;
  const names = async (query: string) =>
    (await list(`${days}&${query}`)).emails.map(({ email }: { email: string }) => email[0]);

  beforeAll(async () => {
    const times = [
      '02-28T23:59:59Z',
      '03-01T00:00:00Z',
      '03-02T12:30:01Z',
      '03-03T23:59:59Z',
      '03-04T00:00:00Z',
    ];
    for (const [index, time] of times.entries()) {
      const address = `${'abcde'[index]}+${year}@x.com`;
      await scene.post(emailBlocklist(), { email: address });
      await scene.rows(
        'update email_addresses set changed_at = $2::timestamptz, hard_bounced_at = $2::timestamptz where email = $1',
        [address, `${year}-${time}`],
      );
    }
  });

  test('lists addresses between two days, from midnight to midnight in UTC, latest first', async () => {
    expect(await list(days)).toEqual({
      emails: [
        { email: `d+${year}@x.com`, [since]: `${year}-03-03 23:59:59 +0000` },
        { email: `c+${year}@x.com`, [since]: `${year}-03-02 12:30:01 +0000` },
        { email: `b+${year}@x.com`, [since]: `${year}-03-01 00:00:00 +0000` },
      ],
      message: 'success',
    });
  });

  test('in both directions, and page by page', async () => {
    expect(await names('sort_direction=asc')).toEqual(['b', 'c', 'd']);
    expect(await names('sort_direction=desc')).toEqual(['d', 'c', 'b']);
    expect(await names('limit=2')).toEqual(['d', 'c']);
    expect(await names('limit=2&offset=2')).toEqual(['b']);
    expect(await names('limit=500&offset=3')).toEqual([]);
  });

  test('lists one address without days, also with a + that is not encoded', async () => {
    for (const email of [`c%2B${year}@x.com`, `C+${year}@x.com`]) {
      expect((await list(`email=${email}`)).emails).toHaveLength(1);
    }
    expect((await list('email=nobody@x.com')).emails).toEqual([]);
  });

  test('combines days with an address', async () => {
    const query = `email=a%2B${year}@x.com&${days}`;
    // Hard bounces of the address are on the other list.
    expect((await list(query)).emails).toHaveLength(since === 'hard_bounced_at' ? 1 : 0);
  });

  test('omits other workspaces', async () => {
    await scene.rows(
      `insert into email_addresses (workspace_id, email, state, changed_at, hard_bounced_at)
       values (gen_random_uuid(), 'z@x.com', 'unsubscribed', $1, $1) on conflict do nothing`,
      [`${year}-03-02`],
    );
    expect(await names('')).toEqual(['d', 'c', 'b']);
  });

  test('accepts a day with a time, also in a zone whose + is not encoded', async () => {
    const between = async (start: string, end: string) =>
      (await list(`start_date=${year}-${start}&end_date=${year}-${end}`)).emails.map(
        ({ email }: { email: string }) => email[0],
      );
    const start = '03-02T14:30:01';
    expect(await between('03-02T12:30:01Z', '03-04')).toEqual(['d', 'c']);
    expect(await between('03-02T12:30:02Z', '03-04T00:00:00Z')).toEqual(['d']);
    expect(await between('03-01', '03-02T12:30:01Z')).toEqual(['b']);
    for (const zone of ['%2B02:00', '+02:00', '+0200']) {
      expect(await between(`${start}${zone}`, '03-04')).toEqual(['d', 'c']);
    }
  });

  test('rejects an invalid query with its reason: 400', async () => {
    expect(await refused('')).toBe("'start_date' and 'end_date' are required, or 'email'");
    expect(await refused('start_date=2026-01-01')).toBe("'end_date' is required, or 'email'");
    expect(await refused('end_date=2026-01-01')).toBe("'start_date' is required, or 'email'");
    expect(await refused('end_date=2026-01-01')).toBe("'start_date' is required, or 'email'");
    for (const day of ['2026-02-30', '2026-1-1', 'yesterday', '2026-01-01T25:00:00Z', '2026-01-01Z']) {
      expect(await refused(`start_date=${day}&end_date=2026-03-01`)).toBe(
        "'start_date' is not valid: it must be a day, YYYY-MM-DD",
      );
    }
    expect(await refused('start_date=2026-01-02&end_date=2026-01-02')).toBe(
      "'start_date' is not valid: it must be before 'end_date'",
    );
    expect(await refused('email=nobody')).toBe(invalid);
    for (const limit of ['0', '501', '-1', '1.5', 'many', '1e2']) {
      expect(await refused(`${days}&limit=${limit}`)).toBe(
        "'limit' is not valid: it must be a whole number, 1 to 500",
      );
    }
    expect(await refused(`${days}&offset=-1`)).toBe(
      "'offset' is not valid: it must be a whole number, 0 or more",
    );
    expect(await refused(`${days}&sort_direction=up`)).toBe(
      "'sort_direction' is not valid: it must be 'asc' or 'desc'",
    );
    expect(await refused(`${days}&limit=1&limit=2`)).toBe("'limit' is not valid: it must be a whole number");
  });
});

test('an address that is subscribed again, or no longer bounces, is removed from its list', async () => {
  const email = 'off@x.com';
  await scene.post(emailBlocklist(), { email });
  await scene.post(emailStatus(), { email, subscription_state: 'opted_in' });
  await scene.post(emailBounceRemove(), { email });
  for (const operation of [emailUnsubscribe(), emailHardBounces()]) {
    expect((await scene.get(operation, `email=${email}`)).body.emails).toEqual([]);
  }
});
