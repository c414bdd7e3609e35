import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { type DevFacts, devClient, devFacts, startDev } from '../setup/dev.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import type { TestProcess } from '../setup/processes.ts';

const cache = temporaryFolder('penstock-dev-cache-');
const folder = temporaryFolder('penstock-dev-seeds-');
const env = { XDG_CACHE_HOME: cache };

const example = path.join(packageRoot, 'docs/seed.yaml');

let running: TestProcess;
let facts: DevFacts;
let client: ReturnType<typeof devClient>;

beforeAll(async () => {
  running = startDev(['--port', '0', '--json', '--seed', example], env);
  facts = await devFacts(running);
  client = devClient(facts);
}, 90_000);
afterAll(async () => {
  running.kill('SIGTERM');
  expect(await running.exit).toEqual({ code: 0, signal: null });
});

const DAY_MS = 86_400_000;
const GROUP = '4f0c1c4e-6a53-4a7e-9c07-2f6d0c1f5a01';

const seed = async (document: object | string) => {
  const body = typeof document === 'string' ? document : JSON.stringify(document);
  const response = await fetch(`${facts.url}/_dev/seed`, { method: 'POST', body });
  // biome-ignore lint/suspicious/noExplicitAny: an answer of any form
  return { status: response.status, body: (await response.json()) as any };
};

const track = (body: object) => client.json('/users/track', body);
const user = (externalId: string) => ({ external_id: externalId, first_name: externalId });

async function exported(...externalIds: string[]) {
  const { users } = await client.json('/users/export/ids', { external_ids: externalIds });
  return users as Record<string, unknown>[];
}

const ids = async (...externalIds: string[]) =>
  (await exported(...externalIds)).map(({ external_id }) => external_id);

const advance = (amount: string | number) => client.control('/clock', { advance: amount });

/** Milliseconds by which the service is ahead of this test. */
const aheadMs = async () =>
  Date.parse((await client.control('/clock', undefined, 'GET')).body.now) - Date.now();

describe('penstock dev --seed', () => {
  test('creates the data of docs/seed.yaml, which the snapshot seed brings back', async () => {
    await client.control('/reset');
    expect(await ids('ada')).toEqual([]);
    await client.control('/restore', { name: 'seed' });
    const [ada] = await exported('ada');
    expect(ada).toMatchObject({
      ...{ first_name: 'Ada', email: 'ada@example.com', custom_attributes: { plan: 'pro' } },
      user_aliases: [{ alias_label: 'shop', alias_name: 'customer-17' }],
      purchases: [{ name: 'book', count: 2 }],
    });
    expect((ada!.custom_events as { name: string }[]).map(({ name }) => name).sort()).toEqual([
      'logged_in',
      'signed_up',
    ]);
    expect(await ids('grace')).toEqual(['grace']);
    const state = await client.json(
      `/subscription/status/get?subscription_group_id=${GROUP}&external_id=ada`,
      undefined,
      'GET',
    );
    expect(state.status).toEqual({ ada: 'Subscribed' });
    expect(await client.json('/segments/list', undefined, 'GET')).toMatchObject({
      segments: [{ name: 'Customers of the last week' }],
    });
    expect(await client.json('/preference_center/v1/list', undefined, 'GET')).toMatchObject({
      preference_centers: [{ name: 'newsletters' }],
    });
    expect(await client.json('/cdi/integrations', undefined, 'GET')).toMatchObject({
      results: [{ integration_name: 'plans' }],
    });
  });

  test('ends with the position and the rule if the file has an unknown member', async () => {
    const file = path.join(folder, 'wrong.yaml');
    writeFileSync(file, 'users:\n  - external_id: ada\n    atributes: {}\n');
    const refused = startDev(['--port', '0', '--seed', file], env);
    expect(await refused.exit).toEqual({ code: 1, signal: null });
    expect(refused.log.map(({ text }) => text).join('\n')).toContain(
      'users.0.atributes (line 3): unknown member',
    );
  });
});

describe('control endpoints', () => {
  beforeEach(async () => {
    await client.control('/faults', undefined, 'DELETE');
    expect((await client.control('/reset')).status).toBe(200);
  });

  describe('POST /_dev/seed', () => {
    test('creates more objects than a request may have, and journals no request', async () => {
      const users = Array.from({ length: 160 }, (_, number) => user(`user-${number}`)).map(
        ({ external_id, ...attributes }) => ({ external_id, attributes }),
      );
      expect(await seed({ users })).toMatchObject({ status: 200, body: { users: 160 } });
      expect(await ids('user-0', 'user-159')).toEqual(['user-0', 'user-159']);
      expect((await client.control('/requests', { path: '/users/track' })).body.count).toBe(0);
    });

    test('creates no data if a part is rejected, and names the line and the rule', async () => {
      const refused = await seed(
        ['users:', '  - external_id: ada', 'events:', '  - external_id: ada', '    name: 7'].join('\n'),
      );
      expect(refused.status).toBe(400);
      expect(refused.body.errors).toEqual([expect.stringMatching(/^events\.0 \(line 4\): .*name/)]);
      expect(await ids('ada')).toEqual([]);
    });

    test.each([
      ['users: [', /YAML/],
      ['users: 7', /^users \(line 1\): 'users' is not valid: it must be array$/],
      [
        'subscription_groups: [{name: a, channel: fax}]',
        /^subscription_groups\.0\.channel \(line 1\): .*email, sms/,
      ],
      ['users: [{aliases: [{}]}]', /^users\.0 \(line 1\): .*external_id/],
      ['segments: [{name: a, definition: {attribute: 1}}]', /^segments\.0 \(line 1\): /],
      [
        'integrations: [{name: a, kind: events, source: {type: folder}}]',
        /^integrations\.0\.source.* 'path'/,
      ],
    ])('rejects %s with its position', async (text, problem) => {
      const { status, body } = await seed(text);
      expect({ status, errors: body.errors }).toEqual({
        status: 400,
        errors: [expect.stringMatching(problem)],
      });
    });
  });

  describe('POST /_dev/clock', () => {
    test('advances the times that users get, and a reset returns to real time', async () => {
      await track({ attributes: [user('before')] });
      expect((await advance('3 days')).body).toMatchObject({ frozen: false });
      await track({ attributes: [user('after')] });
      const [before, after] = await exported('before', 'after');
      const gap = Date.parse(after!.created_at as string) - Date.parse(before!.created_at as string);
      expect(Math.round(gap / DAY_MS)).toBe(3);
      await client.control('/reset');
      expect(Math.abs(await aheadMs())).toBeLessThan(5000);
    });

    test('freezes time at the given moment', async () => {
      const set = '2031-02-03T04:05:06.000Z';
      await client.control('/clock', { set, freeze: true });
      await track({ attributes: [user('ada')] });
      expect((await client.control('/clock', undefined, 'GET')).body).toMatchObject({
        now: set,
        frozen: true,
      });
      expect(await exported('ada')).toMatchObject([{ created_at: set }]);
      expect((await advance('1 month 2 hours')).body.now).toBe('2031-03-03T06:05:06.000Z');
    });

    test('a restore returns to the clock of the snapshot', async () => {
      await advance('10 days');
      await client.control('/snapshot', { name: 'later' });
      await client.control('/clock', { real: true });
      await client.control('/restore', { name: 'later' });
      expect(Math.round((await aheadMs()) / DAY_MS)).toBe(10);
    });

    test('moves users out of a segment that counts events in days', async () => {
      const definition = { event: 'read', count_at_least: 2, last_in_days: 7 };
      const name = 'Readers';
      const made = await seed({ segments: [{ name, definition }] });
      const segment_id = made.body.segments[name];
      const time = new Date().toISOString();
      await track({ events: [1, 2].map(() => ({ external_id: 'ada', name: 'read', time })) });
      const filesOfExport = async () => {
        const requested = { segment_id, fields_to_export: ['external_id'] };
        const { url } = await client.json('/users/export/segment', requested);
        expect((await client.control('/settle', { timeout_ms: 60_000 })).body.settled).toBe(true);
        const response = await fetch(`${facts.url}${new URL(url).pathname}`);
        expect(response.status).toBe(200);
        // Each file of a ZIP has a header with this beginning.
        return (
          Buffer.from(await response.arrayBuffer())
            .toString('latin1')
            .split('PK\u0001\u0002').length - 1
        );
      };
      expect(await filesOfExport()).toBe(1);
      await advance('8 days');
      expect(await filesOfExport()).toBe(0);
    }, 90_000);

    test('refills an exhausted rate limit', async () => {
      const left = async () =>
        Number((await client.send('/events/list', undefined, 'GET')).headers.get('X-RateLimit-Remaining'));
      const first = await left();
      expect(await left()).toBe(first - 1);
      await advance('1 hour');
      expect(await left()).toBe(first);
    });

    test('ends the memory of an idempotency key after a day', async () => {
      const send = () =>
        client.send('/users/track', { attributes: [user('ada')] }, 'POST', { 'Idempotency-Key': 'one' });
      const first = (await send()).headers.get('X-Request-Id');
      expect((await send()).headers.get('X-Request-Id')).toBe(first);
      await advance('25 hours');
      expect((await send()).headers.get('X-Request-Id')).not.toBe(first);
    });

    test('ends the link to a preference center', async () => {
      const text = readFileSync(example, 'utf8');
      const { body } = await seed(text);
      const center = body.preference_centers.newsletters;
      const { preference_center_url } = await client.json(
        `/preference_center/v1/${center}/url/ada`,
        undefined,
        'GET',
      );
      const status = async () =>
        (await fetch(`${facts.url}${new URL(preference_center_url).pathname}`)).status;
      expect(await status()).toBe(200);
      await advance('10 years');
      expect(await status()).not.toBe(200);
    });

    test('starts a scheduled sync, for which settle waits', async () => {
      const rows = path.join(folder, 'rows');
      mkdirSync(rows, { recursive: true });
      writeFileSync(
        path.join(rows, 'users.csv'),
        'EXTERNAL_ID,UPDATED_AT,PAYLOAD\nada,2026-01-01T00:00:00Z,"{""first_name"": ""Ada""}"\n',
      );
      const source = { type: 'folder', path: rows, format: 'csv' };
      await seed({ integrations: [{ name: 'users', kind: 'attributes', source, schedule: 'daily' }] });
      expect((await client.control('/settle')).body.settled).toBe(true);
      expect(await ids('ada')).toEqual([]);
      await advance('1 day');
      expect((await client.control('/settle', { timeout_ms: 60_000 })).body.settled).toBe(true);
      expect(await ids('ada')).toEqual(['ada']);
    }, 90_000);

    test.each([
      [{ set: 'tomorrow' }, 'ISO 8601'],
      [{ advance: 'soon' }, '3 days'],
      [{ advance: '300 years' }, '1971 to 2199'],
      [{}, 'not valid'],
    ])('rejects %j', async (change, rule) => {
      const { status, body } = await client.control('/clock', change);
      expect({ status, message: body.message }).toEqual({
        status: 400,
        message: expect.stringContaining(rule),
      });
    });
  });

  describe('POST /_dev/faults', () => {
    test('object_errors rejects the chosen objects, and the others take effect', async () => {
      await client.control('/faults', {
        ...{ kind: 'object_errors', path: '/users/track' },
        errors: [{ index: 1, type: "'first_name' is not valid" }],
      });
      expect(await track({ attributes: [user('a'), user('b'), user('c')] })).toEqual({
        message: 'success',
        attributes_processed: 2,
        errors: [{ type: "'first_name' is not valid", input_array: 'attributes', index: 1 }],
      });
      expect(await ids('a', 'b', 'c')).toEqual(['a', 'c']);
      expect(await track({ attributes: [user('b')] })).toEqual({
        message: 'success',
        attributes_processed: 1,
      });
    });

    test('object_errors rejects the whole request if no other object is valid', async () => {
      await client.control('/faults', { kind: 'object_errors', errors: [{ index: 0, type: 'no' }] });
      const response = await client.send('/users/track', { events: [{ external_id: 'a' }] });
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({
        errors: [{ type: 'no', input_array: 'events', index: 0 }],
      });
    });

    test('stale_reads returns the data of an earlier time to reads', async () => {
      await track({ attributes: [user('early')] });
      await client.control('/faults', { kind: 'stale_reads', seconds: 60 });
      await track({ attributes: [user('late')] });
      expect(await ids('early', 'late')).toEqual(['early']);
      await client.control('/faults', undefined, 'DELETE');
      expect(await ids('early', 'late')).toEqual(['early', 'late']);
    });

    test('rate_limit names the limit of the operation', async () => {
      await client.control('/faults', { kind: 'rate_limit' });
      const { headers } = await client.send('/users/merge', { merge_updates: [] });
      expect(headers.get('X-RateLimit-Limit')).toBe('20000');
    });
  });
});
