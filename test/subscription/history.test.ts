import { readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { emailBlocklist } from '../../src/operations/email.blocklist.ts';
import { emailBounceRemove } from '../../src/operations/email.bounce.remove.ts';
import { emailSpamRemove } from '../../src/operations/email.spam.remove.ts';
import { emailStatus } from '../../src/operations/email.status.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { merge, remove, user } from '../identity/objects.ts';
import { has } from '../identity/scene.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createSubscriptionScene, email, phones, type SubscriptionScene, says } from './scene.ts';

let scene: SubscriptionScene;
beforeAll(async () => {
  scene = await createSubscriptionScene();
});
afterAll(() => scene.stop());

const apply = (requestId: string, ...objects: Parameters<SubscriptionScene['apply']>[0]) =>
  scene.apply(objects, scene.workspaceId, requestId);
const joins = (id: string, subscription_state: 'subscribed' | 'unsubscribed' = 'subscribed') => ({
  subscription_groups: [{ subscription_group_id: id, subscription_state }],
});

describe('each change of a state adds a row with subject, subscription, states, time and request', () => {
  test('from every endpoint that sets a state', async () => {
    const { news } = scene.groups;
    const ada = 'ada@x.com';
    await apply(
      'track',
      has('ada', { standard: { email: ada }, email_subscribe: 'opted_in', ...joins(news) }),
    );
    await scene.set({ subscription_group_id: news, subscription_state: 'unsubscribed', email: ada }, 'v1');
    await scene.setAll(
      [{ subscription_group_id: news, subscription_state: 'subscribed', external_ids: 'ada' }],
      'v2',
    );
    await scene.post(emailStatus(), { email: ada, subscription_state: 'subscribed' }, 'status');
    await scene.post(emailBlocklist(), { email: ada }, 'blocklist');
    expect(await scene.history(ada)).toEqual([
      ['', null, 'opted_in', 'track'],
      ['news', null, 'subscribed', 'track'],
      ['news', 'subscribed', 'unsubscribed', 'v1'],
      ['news', 'unsubscribed', 'subscribed', 'v2'],
      ['', 'opted_in', 'subscribed', 'status'],
      ['', 'subscribed', 'unsubscribed', 'blocklist'],
      ['hard_bounce', null, 'hard_bounced', 'blocklist'],
    ]);
  });

  test('from /email/blocklist and /email/bounce/remove, also for the hard bounce', async () => {
    const email = 'bounce@x.com';
    await scene.post(emailBounceRemove(), { email }, 'in vain');
    await scene.post(emailBlocklist(), { email }, 'one');
    await scene.post(emailBlocklist(), { email }, 'again');
    await scene.post(emailBounceRemove(), { email }, 'two');
    await scene.post(emailBounceRemove(), { email }, 'in vain');
    expect(await scene.history(email)).toEqual([
      ['', null, 'unsubscribed', 'one'],
      ['hard_bounce', null, 'hard_bounced', 'one'],
      ['hard_bounce', 'hard_bounced', null, 'two'],
    ]);
  });

  test('from a spam mark, a merge that transfers it, and /email/spam/remove', async () => {
    const marked = { email: 'spam@x.com', marked_email_as_spam_at: '2026-01-02T00:00:00.000Z' };
    await apply('one', has('s1', { standard: marked }), has('s2', { standard: marked }), has('s3', {}));
    await apply('again', has('s1', { standard: marked }));
    const [first, third] = [await scene.profileId('s1'), await scene.profileId('s3')];
    await apply('merge', merge('s2', 's3'));
    await scene.post(emailSpamRemove(), { email: ['spam@x.com', 'other@x.com'] }, 'remove');
    await scene.post(emailSpamRemove(), { email: 'spam@x.com' }, 'in vain');
    await apply('two', has('s1', { standard: marked }));
    await apply('null', has('s1', { standard: { marked_email_as_spam_at: null } }));
    expect(await scene.history(first)).toEqual([
      ['spam', null, 'marked_as_spam', 'one'],
      ['spam', 'marked_as_spam', null, 'remove'],
      ['spam', null, 'marked_as_spam', 'two'],
      ['spam', 'marked_as_spam', null, 'null'],
    ]);
    expect(await scene.history(third)).toEqual([
      ['spam', null, 'marked_as_spam', 'merge'],
      ['spam', 'marked_as_spam', null, 'remove'],
    ]);
  });

  test('a mark that one batch removes and sets again is recorded in that order', async () => {
    const mark = { marked_email_as_spam_at: '2026-01-02T00:00:00.000Z' };
    const again = { email: 'again@x.com' };
    await apply('one', has('again', { standard: { ...again, ...mark } }));
    await apply('both', email(again.email, { marked_as_spam: false }), has('again', { standard: mark }));
    expect(await scene.history(await scene.profileId('again'))).toEqual([
      ['spam', null, 'marked_as_spam', 'one'],
      ['spam', 'marked_as_spam', null, 'both'],
      ['spam', null, 'marked_as_spam', 'both'],
    ]);
  });

  test('one row per change in a batch, and none for an unchanged state', async () => {
    const { news } = scene.groups;
    const many = { email: 'many@x.com' };
    await scene.apply([
      says(many, news, 'subscribed'),
      says(many, news, 'subscribed'),
      says(many, news, 'unsubscribed'),
      says(many, news, 'subscribed'),
    ]);
    await apply('again', says(many, news, 'subscribed'));
    await apply('last', says(many, news, 'subscribed'), says(many, news, 'unsubscribed'));
    expect(await scene.history(many.email)).toEqual([
      ['news', null, 'subscribed', 'request'],
      ['news', 'subscribed', 'unsubscribed', 'request'],
      ['news', 'unsubscribed', 'subscribed', 'request'],
      ['news', 'subscribed', 'unsubscribed', 'last'],
    ]);
  });

  test('states of a user without an address move to the first address', async () => {
    const { news } = scene.groups;
    await apply('own', has('bare', { email_subscribe: 'unsubscribed', ...joins(news, 'unsubscribed') }));
    const id = await scene.profileId('bare');
    await apply('move', has('bare', { standard: { email: 'bare@x.com' } }));
    expect((await scene.history(id)).sort()).toEqual([
      ['', null, 'unsubscribed', 'own'],
      ['', 'unsubscribed', null, 'move'],
      ['news', null, 'unsubscribed', 'own'],
      ['news', 'unsubscribed', null, 'move'],
    ]);
    expect((await scene.history('bare@x.com')).sort()).toEqual([
      ['', null, 'unsubscribed', 'move'],
      ['news', null, 'unsubscribed', 'move'],
    ]);
  });

  test('states that move with a new or removed number are recorded with that request', async () => {
    const { texts } = scene.groups;
    const phone = phones(7);
    await apply('own', has('called', joins(texts, 'unsubscribed')));
    await apply('come', has('called', { standard: { phone, phone_valid: true } }));
    expect(await scene.history(phone)).toEqual([['texts', null, 'unsubscribed', 'come']]);
    await apply('go', has('called', { standard: { phone: null } }));
    expect(await scene.history(await scene.profileId('called'))).toEqual([
      ['texts', null, 'unsubscribed', 'own'],
      ['texts', 'unsubscribed', null, 'come'],
      ['texts', null, 'unsubscribed', 'go'],
    ]);
  });

  test("an address with a state keeps it, and the user's own state adds no row", async () => {
    await apply('first', email('held@x.com', { state: 'unsubscribed' }));
    await apply('own', has('held', { email_subscribe: 'opted_in' }));
    await apply('move', has('held', { standard: { email: 'held@x.com' } }));
    expect(await scene.history('held@x.com')).toEqual([['', null, 'unsubscribed', 'first']]);
  });

  test('states that a merged phone takes over are recorded with the merge', async () => {
    const { texts } = scene.groups;
    const phone = phones(1);
    await apply('set', has('m1', { standard: { phone, phone_valid: true } }));
    await apply('own', has('m2', joins(texts)));
    await apply('merge', merge('m1', 'm2'));
    expect(await scene.history(phone)).toEqual([['texts', null, 'subscribed', 'merge']]);
  });
});

test('a repeated state keeps its time, and a changed state gets a new one', async () => {
  const since = async () => (await scene.user('time')).email_unsubscribed_at;
  await scene.apply([has('time', { standard: { email: 'time@x.com' }, email_subscribe: 'unsubscribed' })]);
  const first = await since();
  expect(first).toEqual(expect.any(String));
  await waitUntil(() => Date.now() > Date.parse(first), { what: 'the next millisecond' });
  await scene.apply([email('time@x.com', { state: 'unsubscribed' })]);
  expect(await since()).toBe(first);
  await scene.apply([email('time@x.com', { state: 'opted_in' })]);
  expect(await since()).toBeUndefined();
  expect((await scene.user('time')).email_opted_in_at > first).toBe(true);
});

test('a user without an address has the time of its own state', async () => {
  await scene.apply([has('lacks', { email_subscribe: 'opted_in' })]);
  const { email_opted_in_at: since } = await scene.user('lacks');
  const [row] = await scene.rows('select changed_at from subscription_history where subject = $1', [
    await scene.profileId('lacks'),
  ]);
  expect(since).toBe(row.changed_at.toISOString());
});

describe('a delete erases the history', () => {
  test('of the user, and of addresses without another user', async () => {
    const { news, texts } = scene.groups;
    const [mine, ours, phone] = ['mine@x.com', 'ours@x.com', phones(2)];
    await scene.apply([
      has('del', {}),
      says(user('del'), news, 'subscribed'),
      has('del', { standard: { email: mine, phone, phone_valid: true } }),
      says(user('del'), texts, 'subscribed'),
      ...['share 1', 'share 2'].map((name) => has(name, { standard: { email: ours } })),
      says({ email: ours }, news, 'subscribed'),
    ]);
    const id = await scene.profileId('del');
    const rows = async () =>
      Promise.all([id, mine, phone, ours].map(async (name) => (await scene.history(name)).length));
    expect(await rows()).toEqual([2, 1, 1, 1]);
    await scene.apply([remove('del'), remove('share 1')]);
    expect(await rows()).toEqual([0, 0, 0, 1]);
    await scene.apply([remove('share 2')]);
    expect(await rows()).toEqual([0, 0, 0, 0]);
  });

  test('and a merge erases the history of the merged user’s own states', async () => {
    await scene.apply([has('merged', { email_subscribe: 'unsubscribed' }), has('kept', {})]);
    const id = await scene.profileId('merged');
    expect(await scene.history(id)).toHaveLength(1);
    await scene.apply([merge('merged', 'kept')]);
    expect(await scene.history(id)).toEqual([]);
  });
});

test.each([true, false])(
  "the second of two concurrent changes records the first one's result; stored before: %s",
  async (isStored) => {
    const { news } = scene.groups;
    const lanes = { email: `lanes-${isStored}@x.com` };
    if (isStored) await apply('stored', says(lanes, news, 'subscribed'));
    await scene.inTwoLanes(
      { object: says(lanes, news, 'unsubscribed'), requestId: 'one' },
      { object: says(lanes, news, 'subscribed'), requestId: 'two' },
    );
    expect((await scene.history(lanes.email)).slice(-2)).toEqual([
      ['news', isStored ? 'subscribed' : null, 'unsubscribed', 'one'],
      ['news', 'unsubscribed', 'subscribed', 'two'],
    ]);
  },
);

/** Returns the statement of the migration that writes the history of older states. */
const seedOf = (migration: string) => {
  const file = path.join(packageRoot, 'prisma/migrations', migration, 'migration.sql');
  return /insert into subscription_history[^;]+;/.exec(readFileSync(file, 'utf8'))![0];
};

test('states older than the history are its first rows', async () => {
  const { news, texts } = scene.groups;
  const [address, phone] = ['older@x.com', phones(3)];
  await scene.apply([
    has('older', { email_subscribe: 'unsubscribed', ...joins(news) }),
    email(address, { state: 'opted_in' }),
    says({ email: address }, news, 'subscribed'),
    says({ phone }, texts, 'unsubscribed'),
  ]);
  const id = await scene.profileId('older');
  await scene.rows('delete from subscription_history');
  await scene.rows(seedOf('0007_subscriptions'));
  expect((await scene.history(id)).sort()).toEqual([
    ['', null, 'unsubscribed', 'unknown'],
    ['news', null, 'subscribed', 'unknown'],
  ]);
  expect((await scene.history(address)).sort()).toEqual([
    ['', null, 'opted_in', 'unknown'],
    ['news', null, 'subscribed', 'unknown'],
  ]);
  await apply('next', says({ phone }, texts, 'subscribed'));
  expect(await scene.history(phone)).toEqual([
    ['texts', null, 'unsubscribed', 'unknown'],
    ['texts', 'unsubscribed', 'subscribed', 'next'],
  ]);
});

test('marks older than their history are its first rows', async () => {
  const email = 'old.mark@x.com';
  await scene.apply([
    has('old mark', { standard: { email, marked_email_as_spam_at: '2026-01-02T00:00:00.000Z' } }),
  ]);
  await scene.post(emailBlocklist(), { email });
  const id = await scene.profileId('old mark');
  await scene.rows('delete from subscription_history');
  await scene.rows(seedOf('0011_marks_in_history'));
  await scene.post(emailBounceRemove(), { email }, 'bounce');
  await scene.post(emailSpamRemove(), { email }, 'spam');
  expect(await scene.history(email)).toEqual([
    ['hard_bounce', null, 'hard_bounced', 'unknown'],
    ['hard_bounce', 'hard_bounced', null, 'bounce'],
  ]);
  expect(await scene.history(id)).toEqual([
    ['spam', null, 'marked_as_spam', 'unknown'],
    ['spam', 'marked_as_spam', null, 'spam'],
  ]);
});
