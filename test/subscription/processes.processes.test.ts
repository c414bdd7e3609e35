import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { READ_BACK_WITHIN } from '../../src/operations/subscription/states.ts';
import type { Json } from '../../src/profile/json.ts';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createGroup } from '../setup/workspace.ts';

/** Subscriptions from HTTP to Postgres and back, through separate processes. */
describe.each(eitherBackend)('subscriptions, with the queue in %s', (backend) => {
  let fleet: Fleet;
  let news: string;
  let texts: string;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 2, workers: 2 });
    news = await createGroup(fleet.pool, fleet.workspace.id, 'email');
    texts = await createGroup(fleet.pool, fleet.workspace.id, 'sms');
  });
  afterAll(() => fleet.stop());

  const post = async (path: string, json: Json) => {
    const answer = await send(fleet.edges[0]!.port, { path, key: fleet.workspace.key, json });
    expect(answer).toMatchObject({ status: 201, body: { message: 'success' } });
  };
  const get = async (path: string) => {
    const { status, body } = await send(fleet.edges[1]!.port, {
      method: 'GET',
      path,
      key: fleet.workspace.key,
    });
    return { status, ...body };
  };
  const states = (group: string, query: string) =>
    get(`/subscription/status/get?subscription_group_id=${group}&${query}`);
  const shows = async (read: () => Promise<unknown>, expected: unknown) => {
    const seen = async () => {
      expect({ read: await read() }).toMatchObject({ read: expected });
      return true;
    };
    await waitUntil(seen, { what: JSON.stringify(expected) });
  };

  test('each endpoint takes effect, and its get reads it back', async () => {
    const address = { email: 'ada@x.com', phone: '+442071838750' };
    await post('/users/track', { attributes: [{ external_id: 'ada', ...address }] });
    await post('/subscription/status/set', {
      subscription_group_id: news,
      subscription_state: 'subscribed',
      external_id: 'ada',
      email: ['orphan@x.com'],
    });
    await post('/v2/subscription/status/set', {
      subscription_groups: [
        { subscription_group_id: news, subscription_state: 'unsubscribed', emails: 'orphan@x.com' },
        { subscription_group_id: texts, subscription_state: 'unsubscribed', phones: [address.phone] },
      ],
    });
    await shows(() => states(news, 'email=ada@x.com&email=orphan@x.com'), {
      status: { 'ada@x.com': 'Subscribed', 'orphan@x.com': 'Unsubscribed' },
    });
    await shows(() => states(texts, 'external_id[]=ada'), { status: { ada: 'Unsubscribed' } });
    await shows(() => get('/subscription/user/status?external_id=ada'), {
      users: [{ external_id: 'ada', ...address, subscription_groups: [{ id: news }, { id: texts }] }],
      total_count: 1,
    });
    await post('/email/status', { email: address.email, subscription_state: 'opted_in' });
    await post('/email/blocklist', { email: 'a.blocked@x.com' });
    await post('/email/blacklist', { email: ['b.blacked@x.com'] });
    await post('/email/bounce/remove', { email: 'b.blacked@x.com' });
    await post('/email/spam/remove', { email: address.email });
    const days = 'start_date=2020-01-01&end_date=2100-01-01&sort_direction=asc';
    // Two lanes may apply them in either order.
    const blocked = ['a.blocked@x.com', 'b.blacked@x.com'].map((email) => expect.objectContaining({ email }));
    await shows(() => get(`/email/unsubscribes?${days}`), { emails: expect.arrayContaining(blocked) });
    await shows(() => get(`/email/hard_bounces?${days}`), { emails: [{ email: 'a.blocked@x.com' }] });
    await shows(
      async () =>
        (
          await send(fleet.edges[0]!.port, {
            path: '/users/export/ids',
            key: fleet.workspace.key,
            json: { external_ids: ['ada'] },
          })
        ).body,
      { users: [{ email_subscribe: 'opted_in', email_opted_in_at: expect.any(String) }] },
    );
  });

  test('a new group is usable at once', async () => {
    const fresh = await createGroup(fleet.pool, fleet.workspace.id, 'email', { name: 'fresh' });
    await post('/subscription/status/set', {
      subscription_group_id: fresh,
      subscription_state: 'subscribed',
      email: 'fresh@x.com',
    });
    await shows(() => states(fresh, 'email=fresh@x.com'), { status: { 'fresh@x.com': 'Subscribed' } });
  });

  test('50 identifiers in a query are a list', async () => {
    const query = Array.from({ length: 50 }, (_, index) => `external_id[]=list${index}`).join('&');
    const { status } = await states(news, query);
    expect(Object.keys(status)).toHaveLength(50);
  });

  test('G3: the last state of an identifier holds, with track objects in between', async () => {
    const users = Array.from({ length: 10 }, (_, index) => `order${index}`);
    const setting = (subscription_state: string, who: object) =>
      post('/subscription/status/set', { subscription_group_id: news, subscription_state, ...who });
    await Promise.all(
      users.map(async (external_id, index) => {
        const email = `${external_id}@x.com`;
        await post('/users/track', { attributes: [{ external_id, email }] });
        await setting('subscribed', { email });
        await post('/users/track', {
          attributes: [
            {
              email,
              subscription_groups: [{ subscription_group_id: news, subscription_state: 'unsubscribed' }],
            },
          ],
        });
        if (index % 2 === 0) await setting('subscribed', { email });
        await post('/users/track', { attributes: [{ email, done: true }] });
      }),
    );
    const query = users.map((external_id) => `external_id=${external_id}`).join('&');
    await shows(
      async () =>
        (
          await fleet.pool.query(
            "select count(*)::int as done from profiles where custom_attributes ? 'done'",
          )
        ).rows[0],
      { done: users.length },
    );
    expect((await states(news, query)).status).toEqual(
      Object.fromEntries(users.map((user, index) => [user, index % 2 === 0 ? 'Subscribed' : 'Unsubscribed'])),
    );
  });

  test('G1, G2: acknowledged states take effect once, although workers are killed', async () => {
    const counted = async () =>
      (await fleet.pool.query('select coalesce(sum(subscriptions), 0)::int as n from usage')).rows[0]
        .n as number;
    const before = await counted();
    const addresses = Array.from({ length: 60 }, (_, index) => `killed${index}@x.com`);
    for (const [index, email] of addresses.entries()) {
      if (index % 20 === 10) await Promise.all([fleet.end(fleet.workers[0]!), fleet.startWorker()]);
      await post('/subscription/status/set', {
        ...{ subscription_group_id: news, subscription_state: 'unsubscribed', email },
      });
      await post('/email/blocklist', { email });
    }
    await shows(counted, before + 2 * addresses.length);
    const { rows } = await fleet.pool.query(
      `select subject, count(*)::int as changes, count(distinct request_id)::int as requests
       from subscription_history where subject like 'killed%' group by subject`,
    );
    expect(rows).toHaveLength(addresses.length);
    // The group's state, the email's, and the hard bounce.
    for (const row of rows) expect(row).toMatchObject({ changes: 3, requests: 2 });
  });

  /**
   * Expects an acknowledged setting to be readable at once, unless the request timed out waiting for the
   * workers.
   */
  const readsBack = async (set: () => Promise<void>, read: () => Promise<unknown>, expected: unknown) => {
    const from = performance.now();
    await set();
    const milliseconds = performance.now() - from;
    if (milliseconds < READ_BACK_WITHIN) expect(await read()).toEqual(expected);
    else await shows(read, expected);
    return milliseconds;
  };

  test('an acknowledged state is in the next get on any web process, also under load', async ({
    annotate,
  }) => {
    const people = Array.from({ length: 75 }, (_, index) => `noise${index}`);
    const events = people.map((external_id) => ({ external_id, name: 'noise', time: '2026-01-01' }));
    const waits: number[] = [];
    for (let round = 0; round < 60; round++) {
      const isIn = round % 2 === 0;
      const setting = {
        subscription_group_id: news,
        subscription_state: isIn ? 'subscribed' : 'unsubscribed',
      };
      const others = round % 3 === 0 ? [post('/users/track', { events })] : [];
      const set = () =>
        round % 4 < 2
          ? post('/subscription/status/set', { ...setting, email: 'soon@x.com' })
          : post('/v2/subscription/status/set', {
              subscription_groups: [{ ...setting, emails: ['soon@x.com'] }],
            });
      const read = async () => (await states(news, 'email=soon@x.com')).status;
      waits.push(await readsBack(set, read, { 'soon@x.com': isIn ? 'Subscribed' : 'Unsubscribed' }));
      await Promise.all(others);
    }
    waits.sort((a, b) => a - b);
    await annotate(`answered after ${waits[30]!.toFixed(1)} ms (median), ${waits[57]!.toFixed(1)} ms (95 %)`);
    expect(waits[30]).toBeLessThan(READ_BACK_WITHIN);
  });

  test('acknowledged calls of /email/status, /email/blocklist and removals are readable at once', async () => {
    const email = 'read.back@x.com';
    const lists = () =>
      Promise.all(
        ['unsubscribes', 'hard_bounces'].map(
          async (list) => (await get(`/email/${list}?email=${email}`)).emails.length,
        ),
      );
    for (let round = 0; round < 10; round++) {
      const block = round % 2 === 0 ? '/email/blocklist' : '/email/blacklist';
      await readsBack(() => post(block, { email }), lists, [1, 1]);
      await readsBack(() => post('/email/bounce/remove', { email }), lists, [1, 0]);
      await readsBack(() => post('/email/status', { email, subscription_state: 'opted_in' }), lists, [0, 0]);
    }
  });
});
