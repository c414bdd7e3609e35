import { readdirSync } from 'node:fs';
import path from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type DevFacts, devClient, devFacts, startDev } from '../setup/dev.ts';
import { temporaryFolder } from '../setup/fixtures.ts';
import { leasePort } from '../setup/ports.ts';
import type { TestProcess } from '../setup/processes.ts';

type Client = ReturnType<typeof devClient>;

/** The template of the database is created once and copied by each start. */
const cache = temporaryFolder('penstock-dev-cache-');
const scratch = temporaryFolder('penstock-dev-tmp-');
const env = { XDG_CACHE_HOME: cache, TMPDIR: scratch };

const start = (words: string[], more: Record<string, string> = {}) => startDev(words, { ...env, ...more });

const sentences = ({ log }: TestProcess) => log.map(({ text }) => text).join('\n');

let running: TestProcess;
let facts: DevFacts;

beforeAll(async () => {
  running = start(['--port', '0', '--json']);
  facts = await devFacts(running);
}, 90_000);
afterAll(async () => {
  running.kill('SIGTERM');
  expect(await running.exit).toEqual({ code: 0, signal: null });
  // Its own data, and the data of the killed one.
  expect(readdirSync(scratch).filter((name) => name.startsWith('penstock-dev-'))).toEqual([]);
});

const send: Client['send'] = (...given) => devClient(facts).send(...given);
const control: Client['control'] = (...given) => devClient(facts).control(...given);

const track = (externalId: string, more: object = {}) =>
  send('/users/track', { attributes: [{ external_id: externalId, first_name: 'Ada' }], ...more });

async function users(...externalIds: string[]): Promise<string[]> {
  const response = await send('/users/export/ids', { external_ids: externalIds });
  const { users: found } = (await response.json()) as { users: { external_id: string }[] };
  return found.map(({ external_id }) => external_id);
}

describe('penstock dev', () => {
  beforeEach(async () => {
    expect(await control('/reset')).toEqual({ status: 200, body: { message: 'success' } });
  });

  test('prints fixed credentials in one line of JSON, and no other line', () => {
    expect(facts).toMatchObject({
      api_key: 'penstock-dev-api-key',
      scim_token: 'penstock-dev-scim-token',
      scim_origin: 'penstock-dev',
    });
    expect(running.log).toHaveLength(1);
  });

  test('returns a user to a request that follows the response to /users/track', async () => {
    for (let turn = 0; turn < 10; turn++) {
      expect((await track(`ada-${turn}`)).status).toBe(201);
      expect(await users(`ada-${turn}`)).toEqual([`ada-${turn}`]);
    }
  });

  test('returns a merged user to a request that follows the response to /users/merge', async () => {
    await track('kept');
    await track('merged', {
      events: [{ external_id: 'merged', name: 'paid', time: new Date().toISOString() }],
    });
    const merge = {
      identifier_to_merge: { external_id: 'merged' },
      identifier_to_keep: { external_id: 'kept' },
    };
    expect((await send('/users/merge', { merge_updates: [merge] })).status).toBe(202);
    expect(await users('merged', 'kept')).toEqual(['kept']);
  });

  test('serves SCIM with the printed token and origin', async () => {
    const response = await fetch(`${facts.url}/scim/v2/ServiceProviderConfig`, {
      headers: { Authorization: `Bearer ${facts.scim_token}`, 'X-Request-Origin': facts.scim_origin },
    });
    expect(response.status).toBe(200);
  });

  test('starts the console at the first connection', async () => {
    const response = await fetch(`${facts.console}/sign-in`);
    expect(response.status).toBe(200);
    expect(await response.text()).toContain('Sign in');
  });

  test('documents its control endpoints in OpenAPI under the tag control', async () => {
    const { paths } = (await (await fetch(`${facts.url}/openapi.json`)).json()) as {
      paths: Record<string, Record<string, { tags: string[] }>>;
    };
    const documented = Object.entries(paths).filter(([name]) => name.startsWith('/_dev/'));
    expect(documented.map(([name]) => name).sort()).toEqual(
      ['clock', 'faults', 'requests', 'reset', 'restore', 'seed', 'settle', 'snapshot'].map(
        (name) => `/_dev/${name}`,
      ),
    );
    for (const [, methods] of documented)
      for (const { tags } of Object.values(methods)) expect(tags).toEqual(['control']);
  });

  describe('POST /_dev/reset', () => {
    test('removes users and recorded requests', async () => {
      await track('ada');
      await control('/reset');
      expect((await control('/requests', undefined, 'GET')).body).toEqual({ count: 0, requests: [] });
      expect(await users('ada')).toEqual([]);
    });

    test('refills a rate limit', async () => {
      const left = async () =>
        Number((await send('/events/list', undefined, 'GET')).headers.get('X-RateLimit-Remaining'));
      const first = await left();
      expect(await left()).toBe(first - 1);
      await control('/reset');
      expect(await left()).toBe(first);
    });

    test('keeps requests that arrive meanwhile until the data is removed', async () => {
      const [, ...responses] = await Promise.all([
        control('/reset'),
        ...Array.from({ length: 20 }, (_, number) => track(`user-${number}`)),
      ]);
      expect(responses.map(({ status }) => status)).toEqual(Array(20).fill(201));
    });
  });

  describe('POST /_dev/settle', () => {
    test('lists rejected objects with their reasons', async () => {
      await track('ada', { events: [{ external_id: 'ada', name: 'no time' }] });
      expect((await control('/settle')).body).toEqual({
        settled: true,
        dead_letters: [],
        rejected: [
          {
            ...{ request_id: expect.any(String), operation: 'users.track', input_array: 'events', index: 0 },
            type: expect.stringContaining('time'),
            object: { external_id: 'ada', name: 'no time' },
          },
        ],
      });
    });
  });

  describe('snapshots', () => {
    test('POST /_dev/restore brings back the users of a snapshot and removes later ones', async () => {
      await track('before');
      await control('/snapshot', { name: 'one' });
      await track('after');
      expect(await users('before', 'after')).toEqual(['before', 'after']);
      expect((await control('/restore', { name: 'one' })).status).toBe(200);
      expect(await users('before', 'after')).toEqual(['before']);
    });

    test('POST /_dev/restore returns 404 for a name without a snapshot', async () => {
      expect(await control('/restore', { name: 'none' })).toEqual({
        status: 404,
        body: { message: "There is no snapshot 'none'." },
      });
    });

    test('POST /_dev/snapshot returns 400 for a name with other characters', async () => {
      const { status, body } = await control('/snapshot', { name: 'a b' });
      expect({ status, message: body.message }).toEqual({
        status: 400,
        message: "'name' is not valid: it must have 1 to 40 letters, digits, hyphens and underscores",
      });
    });
  });

  describe('POST /_dev/requests', () => {
    test('lists the requests that contain a part of JSON, with their responses', async () => {
      await track('ada');
      await track('grace');
      const { body } = await control('/requests', {
        ...{ method: 'post', path: '/users/track' },
        body: { attributes: [{ external_id: 'grace' }] },
      });
      expect(body).toMatchObject({
        count: 1,
        requests: [{ status: 201, method: 'POST', body: { attributes: [{ first_name: 'Ada' }] } }],
      });
    });

    test('names each request as the header of its response does', async () => {
      const response = await send('/users/track', { attributes: [{ external_id: 'ada' }] });
      const { body } = await control('/requests', { path: '/users/track' });
      expect(body.requests).toMatchObject([{ request_id: response.headers.get('X-Request-Id') }]);
    });
  });

  describe('POST /_dev/faults', () => {
    test.each([
      ['rate_limit', 429],
      ['server_error', 500],
      ['unavailable', 503],
    ])('%s answers so many requests with %i', async (kind, status) => {
      await control('/faults', { kind, path: '/users/track', times: 2, retry_after: 7 });
      const responses = [await track('ada'), await track('ada'), await track('ada')];
      expect(responses.map((one) => one.status)).toEqual([status, status, 201]);
      expect(responses[0]!.headers.get('Retry-After')).toBe(kind === 'server_error' ? null : '7');
    });

    test('reset closes the connection and rejects the request', async () => {
      await control('/faults', { kind: 'reset', path: '/users/track' });
      await expect(track('ada')).rejects.toThrow();
      expect(await users('ada')).toEqual([]);
    });

    test('lost_response closes the connection and accepts the request', async () => {
      await control('/faults', { kind: 'lost_response', path: '/users/track' });
      await expect(track('ada')).rejects.toThrow();
      expect(await users('ada')).toEqual(['ada']);
      expect((await control('/requests', { path: '/users/track' })).body.count).toBe(1);
    });

    test('delay answers later', async () => {
      await control('/faults', { kind: 'delay', path: '/users/track', delay_ms: 300 });
      const before = performance.now();
      expect((await track('ada')).status).toBe(201);
      expect(performance.now() - before).toBeGreaterThan(295);
    });
  });

  test('a control endpoint rejects a request from a web page', async () => {
    const response = await fetch(`${facts.url}/_dev/reset`, {
      method: 'POST',
      headers: { Origin: 'https://example.com' },
    });
    expect(response.status).toBe(403);
  });
});

describe('a start of penstock dev that fails', () => {
  test.each(['DATABASE_URL', 'REDIS_URL'])('names the setting %s', async (name) => {
    const url = name === 'REDIS_URL' ? 'redis://127.0.0.1' : 'postgresql://127.0.0.1/none';
    const refused = start(['--port', '0'], { [name]: url });
    expect(await refused.exit).toEqual({ code: 1, signal: null });
    expect(sentences(refused)).toContain(`refuses the setting ${name};`);
  });

  test('names HOST if it is not loopback and --host is missing', async () => {
    const refused = start(['--port', '0'], { HOST: '0.0.0.0' });
    expect(await refused.exit).toEqual({ code: 1, signal: null });
    expect(sentences(refused)).toContain('pass --host 0.0.0.0');
  });

  test('names PORT if another program uses it', async () => {
    const refused = start(['--port', new URL(facts.url).port]);
    expect(await refused.exit).toEqual({ code: 1, signal: null });
    expect(sentences(refused)).toContain('is in use');
  });
});

describe('another penstock dev', () => {
  let other: TestProcess;
  afterEach(() => other.kill('SIGKILL'));

  test('runs at the same time as the first one with data of its own, and listens on --host', async () => {
    await track('ada');
    other = start(['--port', String(await leasePort()), '--host', '0.0.0.0', '--json']);
    const { url, api_key } = await devFacts(other);
    const response = await fetch(`${url}/users/export/ids`, {
      method: 'POST',
      headers: { Authorization: `Bearer ${api_key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ external_ids: ['ada'] }),
    });
    expect(await response.json()).toMatchObject({ users: [] });
    expect(readdirSync(path.join(cache, 'penstock'))).toHaveLength(1);
    other.kill('SIGKILL');
    await other.exit;
  });
});
