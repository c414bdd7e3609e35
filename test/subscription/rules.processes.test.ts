import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createGroup } from '../setup/workspace.ts';
import { phones } from './scene.ts';

const both = 'Either an email address or a phone number should be provided, but not both.';

/** The rules of states as clients see them, from HTTP to Postgres and back. */
describe.each(eitherBackend)('rules of states, with the queue in %s', (backend) => {
  let fleet: Fleet;
  let news: string;
  let texts: string;
  beforeAll(async () => {
    fleet = await startFleet(backend, { edges: 1, workers: 1 });
    news = await createGroup(fleet.pool, fleet.workspace.id, 'email', { name: 'News' });
    texts = await createGroup(fleet.pool, fleet.workspace.id, 'sms', { name: 'Texts' });
  });
  afterAll(() => fleet.stop());

  const call = (method: string, path: string, json?: Json) =>
    send(fleet.edges[0]!.port, { method, path, key: fleet.workspace.key, json });
  const post = async (path: string, json: Json) => {
    const { status, headers, body } = await call('POST', path, json);
    expect([200, 201, 202]).toContain(status);
    expect(body).toMatchObject({ message: 'success' });
    return headers.get('x-request-id')!;
  };
  const track = (...attributes: Json[]) => post('/users/track', { attributes });
  const status = (group: string, query: string) =>
    call('GET', `/subscription/status/get?subscription_group_id=${group}&${query}`);
  const v1 = (group: string, state: string, who: object) =>
    call('POST', '/subscription/status/set', {
      ...{ subscription_group_id: group, subscription_state: state },
      ...who,
    });
  const v2 = (group: string, state: string, { external_id, email, phone }: Record<string, Json>) =>
    call('POST', '/v2/subscription/status/set', {
      subscription_groups: [
        {
          ...{ subscription_group_id: group, subscription_state: state },
          ...(external_id !== undefined && { external_ids: external_id }),
          ...(email !== undefined && { emails: email }),
          ...(phone !== undefined && { phones: phone }),
        },
      ],
    });
  const forms = [v1, v2];

  /** Waits until a user has these states: global email, News and Texts. */
  const reads = async (external_id: string, expected: (string | undefined)[]) => {
    const seen = async () => {
      const { body } = await call('POST', '/users/export/ids', { external_ids: [external_id] });
      const { email_subscribe, subscription_groups = [] } = body.users[0];
      const of = (name: string) =>
        subscription_groups.find((group: { name: string }) => group.name === name)?.status;
      expect([email_subscribe, of('News'), of('Texts')]).toEqual(expected);
      return true;
    };
    await waitUntil(seen, { what: `${external_id} to read ${expected}` });
  };
  /** Waits until a group has these states, because accepted requests may not be applied yet. */
  const shows = async (group: string, query: string, expected: Record<string, string>) => {
    const seen = async () => {
      expect(await status(group, query)).toMatchObject({ status: 200, body: { status: expected } });
      return true;
    };
    await waitUntil(seen, { what: JSON.stringify(expected) });
  };

  test('all users of an email or a phone are updated, in both forms and by any identifier', async () => {
    const shared = { email: 'shared@x.com', phone: phones(900) };
    await track(...['s1', 's2', 's3'].map((external_id) => ({ external_id, ...shared })));
    const all = (state: string) => ({ s1: state, s2: state, s3: state });
    const query = 'external_id[]=s1&external_id[]=s2&external_id[]=s3';
    for (const set of forms) {
      expect((await set(news, 'subscribed', { email: shared.email })).status).toBe(201);
      expect((await set(texts, 'unsubscribed', { phone: [shared.phone] })).status).toBe(201);
      await shows(news, query, all('Subscribed'));
      await shows(texts, query, all('Unsubscribed'));
      expect((await set(news, 'unsubscribed', { external_id: ['s2'] })).status).toBe(201);
      expect((await set(texts, 'subscribed', { external_id: 's3' })).status).toBe(201);
      await shows(news, query, all('Unsubscribed'));
      await shows(texts, query, all('Subscribed'));
    }
  });

  test('an email group rejects phones, an SMS group emails, and both kinds together fail', async () => {
    const [email, phone] = ['refused@x.com', phones(901)];
    const refused: [string, Record<string, Json>, string][] = [
      [news, { email, phone }, both],
      [texts, { email: [email], phone: [phone] }, both],
      [news, { phone }, "'PHONE' is not valid: an email group takes 'external_id' or 'email'"],
      [texts, { email }, "'EMAIL' is not valid: an SMS group takes 'external_id' or 'phone'"],
      [crypto.randomUUID(), { email }, 'Invalid subscription group ID'],
      [news, { email: Array(51).fill(email) }, 'The max number of ids per request was exceeded'],
    ];
    for (const set of forms) {
      for (const [group, who, text] of refused) {
        // The second form has plural names.
        const message = text.replace(/[A-Z]{5}/, (name) => `${name.toLowerCase()}${set === v2 ? 's' : ''}`);
        expect(await set(group, 'unsubscribed', who)).toMatchObject({ status: 400, body: { message } });
      }
    }
    await shows(news, `email=${email}`, { [email]: 'Unknown' });
  });

  test('a get prefers external ids, and answers an unknown group with 400', async () => {
    await track({ external_id: 'g1' });
    await v1(news, 'subscribed', { external_id: 'g1', email: ['g@x.com'] });
    await shows(news, 'external_id=g1', { g1: 'Subscribed' });
    await shows(news, 'external_id[]=g1&email=g@x.com&phone=1', { g1: 'Subscribed' });
    await shows(news, 'email[]=g@x.com&email[]=nobody@x.com', {
      ...{ 'g@x.com': 'Subscribed', 'nobody@x.com': 'Unknown' },
    });
    const many = (count: number) => Array.from({ length: count }, (_, n) => `external_id[]=m${n}`).join('&');
    expect(Object.keys((await status(news, many(50))).body.status)).toHaveLength(50);
    for (const [group, query, message] of [
      [news, many(51), 'The max number of ids per request was exceeded'],
      [news, 'email=g@x.com&phone=1', both],
      [crypto.randomUUID(), 'external_id=g1', 'Invalid subscription group ID'],
    ] as const) {
      expect(await status(group, query)).toMatchObject({ status: 400, body: { message } });
    }
  });

  test('a state of an unused address applies to its first user, by track, identify or merge', async () => {
    const orphan = (name: string, n: number) => ({ email: `${name}@x.com`, phone: phones(910 + n) });
    const kept: [string, number][] = [
      ['taken', 0],
      ['made', 1],
      ['identified', 2],
      ['absorbed', 3],
      ['merged', 4],
    ];
    const user_alias = (alias_name: string) => ({ alias_label: 'rules', alias_name });
    for (const [name, n] of kept) {
      const { email, phone } = orphan(name, n);
      await v2(news, 'unsubscribed', { email });
      await v1(texts, 'subscribed', { phone });
      await post('/email/status', { email, subscription_state: 'unsubscribed' });
    }
    const expected = ['unsubscribed', 'Unsubscribed', 'Subscribed'];
    await track({ external_id: 'taken', email_subscribe: 'opted_in' });
    await track(
      { external_id: 'taken', ...orphan('taken', 0) },
      { external_id: 'made', ...orphan('made', 1) },
    );
    await track(
      { user_alias: user_alias('i'), _update_existing_only: false, ...orphan('identified', 2) },
      { user_alias: user_alias('a'), _update_existing_only: false, ...orphan('absorbed', 3) },
      { external_id: 'absorbed' },
      { external_id: 'loser', ...orphan('merged', 4) },
      { external_id: 'merged' },
    );
    await post('/users/identify', {
      aliases_to_identify: [
        { external_id: 'identified', user_alias: user_alias('i') },
        { external_id: 'absorbed', user_alias: user_alias('a') },
      ],
    });
    await post('/users/merge', {
      merge_updates: [
        { identifier_to_merge: { external_id: 'loser' }, identifier_to_keep: { external_id: 'merged' } },
      ],
    });
    for (const [name] of kept) await reads(name, expected);
  });

  test('a changed email starts as subscribed, or has its existing states', async () => {
    await track({ external_id: 'host', email: 'host@x.com', email_subscribe: 'opted_in' });
    await v1(news, 'subscribed', { email: 'host@x.com' });
    await track({ external_id: 'guest', email: 'guest@x.com', email_subscribe: 'unsubscribed' });
    await v1(news, 'unsubscribed', { external_id: 'guest' });
    await track({ external_id: 'guest', email: 'fresh@x.com' });
    await reads('guest', ['subscribed', undefined, undefined]);
    await track({ external_id: 'guest', email: 'host@x.com' });
    await reads('guest', ['opted_in', 'Subscribed', undefined]);
    // States of the old address stay with it.
    await shows(news, 'email=guest@x.com', { 'guest@x.com': 'Unsubscribed' });
  });

  test('a changed phone takes the group states along, unless the new number has its own', async () => {
    const [from, to, taken] = [phones(920), phones(921), phones(922)];
    await track({ external_id: 'resident', phone: taken }, { external_id: 'mover', phone: from });
    await v1(texts, 'subscribed', { phone: taken });
    await v1(texts, 'unsubscribed', { external_id: 'mover' });
    await track({ external_id: 'mover', phone: to });
    await reads('mover', ['subscribed', undefined, 'Unsubscribed']);
    await shows(texts, `phone=${encodeURIComponent(to)}`, { [to]: 'Unsubscribed' });
    await track({ external_id: 'mover', phone: taken });
    await reads('mover', ['subscribed', undefined, 'Subscribed']);
  });

  test('each change adds a history row, and the export has its time', async () => {
    const email = 'told@x.com';
    const made = await track({ external_id: 'told', email, email_subscribe: 'opted_in' });
    const blocked = await post('/email/blocklist', { email });
    const removed = await post('/email/bounce/remove', { email });
    await reads('told', ['unsubscribed', undefined, undefined]);
    const { rows } = await fleet.pool.query(
      `select subscription, from_state, to_state, request_id, changed_at from subscription_history
       where subject_kind = 'email' and subject = $1 order by id`,
      [email],
    );
    expect(rows.map((row) => [row.subscription, row.from_state, row.to_state, row.request_id])).toEqual([
      ['', null, 'opted_in', made],
      ['', 'opted_in', 'unsubscribed', blocked],
      ['hard_bounce', null, 'hard_bounced', blocked],
      ['hard_bounce', 'hard_bounced', null, removed],
    ]);
    const { body } = await call('POST', '/users/export/ids', { external_ids: ['told'] });
    expect(body.users[0].email_unsubscribed_at).toBe(rows[1].changed_at.toISOString());
    expect(body.users[0].email_opted_in_at).toBeUndefined();
  });
});
