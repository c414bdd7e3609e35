import { gzipSync } from 'node:zlib';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { newApiKey } from '../src/admin/api-keys.ts';
import { permissions } from '../src/admin/permissions.ts';
import { type ErrorName, errors } from '../src/errors.ts';
import { allOperations } from '../src/operations/index.ts';
import type { Operation } from '../src/operations/operation.ts';
import type { Json } from '../src/profile/json.ts';
import { compile } from '../src/schemas/compile.ts';
import type { Schema } from '../src/schemas/schema.ts';
import { backends, type Fleet, startFleet } from './guarantees/fleet.ts';
import { createAccess, createCompany } from './setup/access.ts';
import { type ApiAnswer, type ApiRequest, acceptedStatus, exampleOf, send } from './setup/api.ts';
import { expectCommonHeaders } from './setup/common-headers.ts';
import { liftLimits } from './setup/examples.ts';
import { waitUntil } from './setup/fixtures.ts';
import { createWorkspace } from './setup/workspace.ts';

const operations = allOperations('service_id');
const withBody = operations.filter(({ body }) => body);
const withApiKey = operations.filter(({ auth }) => auth === undefined);
const withPermission = operations.flatMap(({ permission, ...operation }) =>
  operation.auth === undefined && permission !== undefined ? [{ ...operation, permission } as Operation] : [],
);
const withKey = operations.filter(({ method }) => method === 'POST');

/** Longer than the body limit, also when it is JSON. */
const FIVE_MEGABYTES = 5 * 1024 * 1024;

/** What every operation promises, of each one: an operation that is added is held to it without a line here. */
describe.each(backends)('every operation, with the queue in %s', (backend) => {
  let fleet: Fleet;
  let port: number;
  let access: ReturnType<typeof createAccess>;
  /** Every key that was sent, good and bad. */
  const sent = new Set<string>();
  beforeAll(async () => {
    fleet = await startFleet(backend, {
      edges: 2,
      // Some answers say what the workers made of the request.
      workers: 1,
      env: { LOG_LEVEL: 'info', KEY_CACHE_MS: '300' },
    });
    port = fleet.edges[0]!.port;
    await liftLimits(fleet.pool, fleet.workspace.id);
    access = createAccess(fleet.pool);
  });
  afterAll(() => fleet.stop());

  /** Sends, and checks what holds for each answer whatever its status. */
  async function ask(request: ApiRequest, to = port): Promise<ApiAnswer> {
    if (request.key !== undefined) sent.add(request.key);
    const answer = await send(to, request);
    expectCommonHeaders(answer.headers, /^\d*$/);
    if (answer.status !== 204)
      expect(answer.headers.get('content-type')).toMatch(/^application\/(scim\+)?json/);
    return answer;
  }

  /** What the operation accepts, changed, from someone whom it admits. */
  async function accept(operation: Operation, change: ApiRequest = {}, to = port, whose = fleet.workspace) {
    const admitted = await access.admit(operation, whose);
    const headers = { ...admitted.headers, ...change.headers };
    return ask({ ...(await access.example(operation, whose)), ...admitted, ...change, headers }, to);
  }

  /** A key of the fleet's workspace. */
  async function makeKey(allowed: readonly string[], allowlist: string[] = []): Promise<string> {
    const { secret, identifier, hash } = newApiKey();
    await fleet.pool.query(
      `insert into api_keys (id, workspace_id, name, identifier, key_hash, permissions, ip_allowlist)
       values ($1, $2, 'test', $3, $4, $5, $6)`,
      [uuidv7(), fleet.workspace.id, identifier, hash, allowed, allowlist],
    );
    return secret;
  }

  describe.each(operations)('$id', (operation) => {
    const status = expect.toBeOneOf(acceptedStatuses(operation));

    test('accepts its documented example with the documented status and reply', async () => {
      const answer = await accept(operation);
      expect(answer).toMatchObject({ status });
      expectFit(operation.replies[answer.status]!.schema, answer.body);
      expectFit(operation.replies[acceptedStatus(operation)]!.schema, operation.example.reply);
    });

    test('tells the limit, what is left and when all of it is free again', async () => {
      const asked = Math.floor(Date.now() / 1000);
      const { headers } = await accept(operation);
      const [limit, remaining, reset] = ['limit', 'remaining', 'reset'].map((name) =>
        Number(headers.get(`x-ratelimit-${name}`)),
      ) as [number, number, number];
      expect(remaining).toBeLessThan(limit);
      expect(reset).toBeGreaterThanOrEqual(asked);
    });

    test('refuses a request without a key, with another scheme and with an unknown key: 401', async () => {
      const { key: good } = await access.admit(operation, fleet.workspace);
      const unknown = `pk_${'x'.repeat(43)}`;
      const basic = Buffer.from(`user:${good}`).toString('base64');
      for (const change of [
        { key: undefined },
        { key: unknown },
        { key: `${good}x` },
        { key: good.toUpperCase() },
        { key: undefined, headers: { authorization: `Basic ${basic}` } },
      ]) {
        const answer = await accept(operation, change);
        expectError(operation, answer, operation.auth === 'scim' ? 'scimUnauthorized' : 'invalidKey');
        expect(answer.headers.get('x-ratelimit-limit')).toBe('');
      }
    });

    test('takes the scheme in any case', async () => {
      const { key } = await access.admit(operation, fleet.workspace);
      const headers = { authorization: `bEARER ${key}` };
      expect(await accept(operation, { key: undefined, headers })).toMatchObject({ status });
    });

    test('refuses what is over the limit of its workspace: 429 with Retry-After', async () => {
      const workspace = await createWorkspace(fleet.pool, `limited-${operation.id}`);
      const company = await createCompany(fleet.pool, `limited-${operation.id}`);
      await fleet.pool.query('update workspaces set company_id = $1 where id = $2', [company, workspace.id]);
      await fleet.pool.query('insert into rate_limits values ($1, $2, 1, 3600)', [
        workspace.id,
        operation.bucket,
      ]);
      const first = await accept(operation, {}, port, workspace);
      expect(first).toMatchObject({ status });
      expect(first.headers.get('x-ratelimit-limit')).toBe('1');
      expect(first.headers.get('x-ratelimit-remaining')).toBe('0');
      const second = await accept(operation, {}, port, workspace);
      expectError(operation, second, 'rateLimited');
      expect(second.body.message ?? second.body.detail).toBe('Rate Limited');
      expect(Number(second.headers.get('retry-after'))).toBeGreaterThan(3000);
      expect(second.headers.get('x-ratelimit-remaining')).toBe('0');
    });

    test('answers another method with 405 and Allow, a path below it with 404', async () => {
      const path = exampleOf(operation).path!.split('?')[0]!;
      const allowed = operations.filter((other) => other.path === operation.path).map(({ method }) => method);
      const method = ['DELETE', 'PATCH', 'PUT', 'POST', 'GET'].find(
        (name) => !allowed.includes(name as never),
      )!;
      const other = await ask({ method, path, key: fleet.workspace.key });
      expect(other).toMatchObject({ status: 405, body: noOperation(operation, 'Method Not Allowed', 405) });
      expect(other.headers.get('allow')?.split(', ')).toEqual(allowed);
      const below = await ask({
        method: operation.method,
        path: `${path}/nowhere/at/all`,
        key: fleet.workspace.key,
      });
      expect(below).toMatchObject({ status: 404, body: noOperation(operation, 'Not Found', 404) });
    });
  });

  describe.each(withApiKey)('$id, which takes an API key,', (operation) => {
    const status = expect.toBeOneOf(acceptedStatuses(operation));

    test('refuses a revoked key on every edge within seconds: 401', async () => {
      const key = await makeKey(operation.permission ? [operation.permission] : []);
      const ports = fleet.edges.map((edge) => edge.port);
      expect(ports).toHaveLength(2);
      const statuses = () =>
        Promise.all(ports.map(async (to) => (await accept(operation, { key }, to)).status));
      expect(await statuses()).toEqual([status, status]);
      await fleet.pool.query('update api_keys set revoked_at = now() where identifier = $1', [
        key.slice(0, 8),
      ]);
      const refused = async () => (await statuses()).every((answer) => answer === 401);
      await waitUntil(refused, { what: 'the revoked key to be refused by both', deadline: 3000 });
    });

    test("refuses an address outside the key's allowlist: 403", async () => {
      const key = await makeKey(permissions, ['10.0.0.0/8', '192.0.2.1']);
      expectError(operation, await accept(operation, { key }), 'accessDenied');
      const local = await makeKey(permissions, ['127.0.0.0/8', '::1/128']);
      expect(await accept(operation, { key: local })).toMatchObject({ status });
    });
  });

  test.each(withPermission)('$id refuses a key without its permission: 403', async (operation) => {
    const key = await makeKey(permissions.filter((permission) => permission !== operation.permission));
    expectError(operation, await accept(operation, { key }), 'accessDenied');
  });

  describe.each(withKey)('$id, which takes an Idempotency-Key,', (operation) => {
    const status = expect.toBeOneOf(acceptedStatuses(operation));

    test('answers the same request with the same answer on every edge, and refuses another: 422', async () => {
      const headers = { 'Idempotency-Key': uuidv7() };
      const { json } = await access.example(operation, fleet.workspace);
      const request = { json: json!, headers };
      const first = await accept(operation, request);
      expect(first).toMatchObject({ status });
      const { port: other } = fleet.edges[1]!;
      const second = await accept(operation, request, other);
      expect({ status: second.status, body: second.body }).toEqual({
        status: first.status,
        body: first.body,
      });
      const changed = { ...(json as Record<string, Json>), changed: true };
      const third = await accept(operation, { json: changed, headers }, other);
      expectError(operation, third, 'idempotencyKeyReused');
    });

    test('refuses a key that is none: 400', async () => {
      const answer = await accept(operation, { headers: { 'Idempotency-Key': 'two words' } });
      expectError(operation, answer, 'invalidIdempotencyKey');
    });
  });

  describe.each(withBody)('$id, which takes a body,', (operation) => {
    const status = expect.toBeOneOf(acceptedStatuses(operation));

    test.each(['{', '{"a":}', '"text', '{}{}', '\u0000', '{"a":1,}'])(
      'refuses malformed JSON: 400 for %j',
      async (raw) => {
        expectError(operation, await accept(operation, { raw }), 'malformedBody');
      },
    );

    test('refuses text that is not UTF-8: 400', async () => {
      const raw = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]);
      expectError(operation, await accept(operation, { raw }), 'malformedBody');
    });

    test.each(['[]', '[{}]', 'null', '"text"', '1'])(
      'refuses a body that is no object: 400 for %s',
      async (raw) => {
        expectError(operation, await accept(operation, { raw }), 'bodyNotObject');
      },
    );

    test('refuses an empty body: 400', async () => {
      for (const raw of ['', '{}']) {
        const answer = await accept(operation, { raw });
        expect(answer.status).toBe(400);
        expectFit(errorSchemaOf(operation), answer.body);
      }
    });

    test.each([
      'text/plain',
      'application/x-www-form-urlencoded',
      'application/json; charset=latin1',
      'json',
    ])('refuses the content type %s: 415', async (type) => {
      const answer = await accept(operation, { headers: { 'content-type': type } });
      expectError(operation, answer, 'unsupportedMediaType');
    });

    test('refuses a request without a content type: 415', async () => {
      const raw = Buffer.from(JSON.stringify(exampleOf(operation).json));
      const answer = await accept(operation, { raw, headers: { 'content-type': '' } });
      expectError(operation, answer, 'unsupportedMediaType');
    });

    test('reads a hostile content type as quickly as an honest one', async () => {
      const type = `application/json${'; '.repeat(80)};charset=x`;
      const answer = await accept(operation, { headers: { 'content-type': type } });
      expectError(operation, answer, 'unsupportedMediaType');
    });

    test('takes JSON with a charset', async () => {
      for (const type of ['application/json; charset=utf-8', 'application/json;charset=UTF-8']) {
        expect(await accept(operation, { headers: { 'content-type': type } })).toMatchObject({ status });
      }
    });

    test('refuses a body over 4 MB: 413', async () => {
      const { json } = await access.example(operation, fleet.workspace);
      const raw = JSON.stringify({
        ...(json as object),
        padding: ' '.repeat(FIVE_MEGABYTES),
      });
      expectError(operation, await accept(operation, { raw }), 'bodyTooLarge');
    });

    test('takes a body of just under 4 MB', async () => {
      const { json } = await access.example(operation, fleet.workspace);
      const raw = `${JSON.stringify(json)}${' '.repeat(4_000_000)}`;
      expect(await accept(operation, { raw })).toMatchObject({ status });
    });

    test('takes a gzip body', async () => {
      const { json } = await access.example(operation, fleet.workspace);
      const raw = gzipSync(JSON.stringify(json));
      expect(await accept(operation, { raw, headers: { 'content-encoding': 'gzip' } })).toMatchObject({
        status,
      });
    });

    test('refuses a gzip body over 4 MB when it is unpacked: 413', async () => {
      const raw = gzipSync(Buffer.alloc(100 * 1024 * 1024, ' '));
      const answer = await accept(operation, { raw, headers: { 'content-encoding': 'gzip' } });
      expectError(operation, answer, 'bodyTooLarge');
    });

    test('refuses a broken gzip body: 400, and an unknown encoding: 415', async () => {
      const gzip = { 'content-encoding': 'gzip' };
      expectError(operation, await accept(operation, { raw: 'no gzip', headers: gzip }), 'malformedBody');
      const other = { 'content-encoding': 'compress' };
      expectError(operation, await accept(operation, { headers: other }), 'unsupportedMediaType');
    });

    test.each(cappedArrays(operation))(
      'takes at most $max $name: 400 for one more',
      async ({ name, max, item }) => {
        const { json } = await access.example(operation, fleet.workspace);
        const holding = (count: number) => ({
          json: {
            ...(json as Record<string, Json>),
            [name]: Array(count).fill(item),
          },
        });
        const { status: refused, body } = await accept(operation, holding(max + 1));
        expect(refused).toBe(400);
        const texts: string[] = (operation.refusals ?? []).map((entry) => errors[entry].message);
        if (operation.refusals && !operation.auth) expect(texts).toContain(body.message);
      },
    );
  });

  test('an unknown path is 404, whoever asks', async () => {
    for (const path of ['/', '/nowhere', '/users', '/users/track/', '/USERS/TRACK/x', '/%ff', '//']) {
      for (const key of [undefined, fleet.workspace.key]) {
        const { status, body } = await ask({ method: 'POST', path, key, json: {} });
        if (path !== '/users/track/')
          expect({ path, status, body }).toEqual({ path, status: 404, body: { message: 'Not Found' } });
      }
    }
  });

  test('/openapi.json names every operation', async () => {
    const { status, headers, body } = await send(port, { method: 'GET', path: '/openapi.json' });
    expect({ status, type: headers.get('content-type') }).toEqual({
      status: 200,
      type: 'application/json; charset=utf-8',
    });
    const named = Object.values(body.paths).flatMap((methods) =>
      Object.values(methods as Record<string, { operationId: string }>).map(({ operationId }) => operationId),
    );
    // The document goes by paths, the list by the specification.
    expect(named.sort()).toEqual(operations.map(({ id }) => id).sort());
  });

  test('the pages beside the operations have the headers of every answer, with no limit', async () => {
    for (const path of ['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs']) {
      const { headers } = await fetch(`http://127.0.0.1:${port}${path}`);
      expectCommonHeaders(headers, /^$/);
    }
  });

  test('no key and nothing about a person is in the log', async () => {
    const lines = fleet.edges[0]!.log.map((line) => JSON.stringify(line));
    expect(lines.length).toBeGreaterThan(operations.length * 10);
    const all = lines.join('\n');
    for (const key of sent) expect(all.includes(key), `the log holds the key ${key}`).toBe(false);
    expect(all).not.toContain('ada@example.com');
  });

  test('one log line per request to an operation, with the id of its answer', async () => {
    for (const operation of operations) {
      const { status, headers } = await accept(operation);
      const id = headers.get('x-request-id');
      const line = await waitUntil(() => fleet.edges[0]!.log.find(({ request_id }) => request_id === id), {
        what: 'the log line',
      });
      expect(line).toMatchObject({
        operation: operation.id,
        status,
        msg: 'request',
      });
      expect(fleet.edges[0]!.log.filter(({ request_id }) => request_id === id)).toHaveLength(1);
    }
  });
});

function errorSchemaOf({ errorSchema }: Operation): Schema {
  return (
    errorSchema ?? { type: 'object', required: ['message'], properties: { message: { type: 'string' } } }
  );
}

/** The body of what is no operation, beside one: in the form of its protocol. */
function noOperation({ auth, errorBody }: Operation, message: string, status: number): Json {
  return (auth && errorBody?.(message, undefined, status)) || { message };
}

function expectError(operation: Operation, { status, body }: ApiAnswer, entry: ErrorName): void {
  const { status: expected, message } = errors[entry];
  expect({ status, body }).toEqual({
    status: expected,
    body: operation.errorBody?.(message, undefined, expected) ?? { message },
  });
  expectFit(errorSchemaOf(operation), body);
}

function expectFit(schema: Schema, value: unknown): void {
  const fits = compile(schema);
  fits(value);
  expect(fits.errors ?? []).toEqual([]);
}

/** Every status with which a request can be accepted: an answer that waits for the workers may come too late. */
const acceptedStatuses = ({ replies }: Operation) => Object.keys(replies).map(Number);

/** The arrays of a body that have a cap, with something to fill them. */
function cappedArrays({ body, example }: Operation) {
  const properties = Object.entries((body?.properties ?? {}) as Record<string, Schema>);
  return properties.flatMap(([name, schema]) => {
    const max = schema.maxItems as number | undefined;
    if (max === undefined) return [];
    const given = (example.body as Record<string, Json>)?.[name];
    return [{ name, max, item: (Array.isArray(given) && given[0]) || sampleOf(schema.items as Schema) }];
  });
}

function sampleOf({ type, required, properties }: Schema): Json {
  if (type !== 'object') return 'sample';
  const members = (required ?? []) as string[];
  return Object.fromEntries(
    members.map((name) => [name, sampleOf((properties as Record<string, Schema>)[name]!)]),
  );
}
