import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { errorBodyOf } from '../../src/errors.ts';
import type { Operation } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { permissions } from '../../src/schemas/permissions.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { createCompany } from '../setup/access.ts';
import { acceptedStatus, exampleOf, send } from '../setup/api.ts';
import { expectCommonHeaders } from '../setup/common-headers.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { acceptedStatuses, expectError, expectFit } from './expected.ts';
import { contractScene, operations } from './scene.ts';

const withApiKey = operations.filter(({ auth }) => auth === undefined);
const withPermission = withApiKey.filter(({ permission }) => permission !== undefined);

const withKey = operations.filter(({ method }) => method === 'POST');

describe.each(eitherBackend)('every operation, with the queue in %s', (backend) => {
  const { call, accept, access, fleet, makeKey, port, staysPrivate } = contractScene(backend, { edges: 2 });

  describe('admission', () => {
    describe.each(operations)('$id', (operation) => {
      const status = expect.toBeOneOf(acceptedStatuses(operation));

      test('rejects a request without a key, with another scheme and with an unknown key: 401', async () => {
        const { key: good } = await access().admit(operation, fleet().workspace);
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

      test('accepts the scheme in any case', async () => {
        const { key } = await access().admit(operation, fleet().workspace);
        const headers = { authorization: `bEARER ${key}` };
        expect(await accept(operation, { key: undefined, headers })).toMatchObject({ status });
      });

      test('rejects requests over the limit of their workspace: 429 with Retry-After', async () => {
        const workspace = await createWorkspace(fleet().pool, `limited-${operation.id}`);
        const company = await createCompany(fleet().pool, `limited-${operation.id}`);
        await fleet().pool.query('update workspaces set company_id = $1 where id = $2', [
          company,
          workspace.id,
        ]);
        await fleet().pool.query('insert into rate_limits values ($1, $2, 1, 3600)', [
          workspace.id,
          operation.bucket,
        ]);
        const first = await accept(operation, {}, port(), workspace);
        expect(first).toMatchObject({ status });
        expect(first.headers.get('x-ratelimit-limit')).toBe('1');
        expect(first.headers.get('x-ratelimit-remaining')).toBe('0');
        const second = await accept(operation, {}, port(), workspace);
        expectError(operation, second, 'rateLimited');
        expect(second.body.message ?? second.body.detail).toBe('Rate Limited');
        expect(Number(second.headers.get('retry-after'))).toBeGreaterThan(3000);
        expect(second.headers.get('x-ratelimit-remaining')).toBe('0');
      });
    });

    describe.each(withApiKey)('$id, which takes an API key,', (operation) => {
      const status = expect.toBeOneOf(acceptedStatuses(operation));

      test('rejects a revoked key on every web process within seconds: 401', async () => {
        const key = await makeKey(operation.permission ? [operation.permission] : []);
        const ports = fleet().edges.map((edge) => edge.port);
        expect(ports).toHaveLength(2);
        const statuses = () =>
          Promise.all(ports.map(async (to) => (await accept(operation, { key }, to)).status));
        expect(await statuses()).toEqual([status, status]);
        await fleet().pool.query('update api_keys set revoked_at = now() where identifier = $1', [
          key.slice(0, 8),
        ]);
        const refused = async () => (await statuses()).every((answer) => answer === 401);
        await waitUntil(refused, { what: 'the revoked key to be refused by both', deadline: 3000 });
      });

      test("rejects an address outside the key's allowlist: 403", async () => {
        const key = await makeKey(permissions, ['10.0.0.0/8', '192.0.2.1']);
        const answer = await accept(operation, { key });
        expectError(operation, answer, 'addressNotAllowed');
        expect(answer.body.detail).toMatch(/^The address (127\.0\.0\.1|::1) is not in the allowlist/);
        const local = await makeKey(permissions, ['127.0.0.0/8', '::1/128']);
        expect(await accept(operation, { key: local })).toMatchObject({ status });
      });
    });

    test.each(withPermission)('$id rejects a key without its permission: 403', async (operation) => {
      const key = await makeKey(permissions.filter((permission) => permission !== operation.permission));
      const answer = await accept(operation, { key });
      expectError(operation, answer, 'permissionMissing');
      expect(answer.body.detail).toContain(`lacks the permission \`${operation.permission}\``);
    });
  });

  describe('responses', () => {
    describe.each(operations)('$id', (operation) => {
      const status = expect.toBeOneOf(acceptedStatuses(operation));

      test('accepts its documented example with the documented status and reply', async () => {
        const answer = await accept(operation);
        expect(answer).toMatchObject({ status });
        expectFit(operation.replies[answer.status]!.schema, answer.body);
        expectFit(operation.replies[acceptedStatus(operation)]!.schema, operation.example.reply);
      });

      test('returns the limit, the remaining requests and the time of the reset', async () => {
        const sentAt = Math.floor(Date.now() / 1000);
        const { headers } = await accept(operation);
        const [limit, remaining, reset] = ['limit', 'remaining', 'reset'].map((name) =>
          Number(headers.get(`x-ratelimit-${name}`)),
        ) as [number, number, number];
        expect(remaining).toBeLessThan(limit);
        expect(reset).toBeGreaterThanOrEqual(sentAt);
      });

      test('answers another method with 405 and Allow, a path below it with 404', async () => {
        const path = exampleOf(operation).path!.split('?')[0]!;
        const allowed = operations
          .filter((other) => other.path === operation.path)
          .map(({ method }) => method);
        const method = ['DELETE', 'PATCH', 'PUT', 'POST', 'GET'].find(
          (name) => !allowed.includes(name as never),
        )!;
        const other = await call({ method, path, key: fleet().workspace.key });
        expect(other).toMatchObject({ status: 405, body: noOperation(operation, 'Method Not Allowed', 405) });
        expect(other.headers.get('allow')?.split(', ')).toEqual(allowed);
        const below = await call({
          method: operation.method,
          path: `${path}/nowhere/at/all`,
          key: fleet().workspace.key,
        });
        expect(below).toMatchObject({ status: 404, body: noOperation(operation, 'Not Found', 404) });
      });
    });

    test('an unknown path is 404, with and without a key', async () => {
      for (const path of ['/nowhere', '/users', '/USERS/TRACK/x', '/%ff', '//']) {
        for (const key of [undefined, fleet().workspace.key]) {
          const { status, body } = await call({ method: 'POST', path, key, json: {} });
          expect({ path, status, body }).toEqual({ path, status: 404, body: errorBodyOf('notFound') });
        }
      }
    });

    test('a path with a trailing slash is 404, whose detail names the path without it', async () => {
      const { status, body } = await call({ method: 'POST', path: '/users/track/', json: {} });
      expect({ status, body }).toEqual({
        status: 404,
        body: {
          message: 'Not Found',
          code: 'trailing_slash',
          detail:
            'The path differs from /users/track only by a trailing slash. Send the request to the known path.',
        },
      });
    });

    test('GET / is 404 and names the addresses of the documentation', async () => {
      const { status, body } = await send(port(), { method: 'GET', path: '/' });
      expect({ status, body }).toEqual({ status: 404, body: errorBodyOf('nothingHere') });
      for (const path of ['/docs', '/openapi.json']) {
        expect(body.message).toContain(path);
        expect((await fetch(`http://127.0.0.1:${port()}${path}`)).status).toBe(200);
      }
    });

    test('/openapi.json names every operation', async () => {
      const { status, headers, body } = await send(port(), { method: 'GET', path: '/openapi.json' });
      expect({ status, type: headers.get('content-type') }).toEqual({
        status: 200,
        type: 'application/json; charset=utf-8',
      });
      const named = Object.values(body.paths).flatMap((methods) =>
        Object.values(methods as Record<string, { operationId: string }>).map(
          ({ operationId }) => operationId,
        ),
      );
      // The document is ordered by path, the list by the specification.
      expect(named.sort()).toEqual(operations.map(({ id }) => id).sort());
    });

    test('pages other than operations have the common headers, and no rate limit', async () => {
      for (const path of ['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs']) {
        const { headers } = await fetch(`http://127.0.0.1:${port()}${path}`);
        expectCommonHeaders(headers, /^$/);
      }
    });

    test('each request to an operation has one log line, with the id of its answer', async () => {
      const answers = new Map<string, { operation: string; status: number }>();
      for (const operation of operations) {
        const { status, headers } = await accept(operation);
        answers.set(headers.get('x-request-id')!, { operation: operation.id, status });
      }
      const { log } = fleet().edges[0]!;
      for (const [id, { operation, status }] of answers) {
        const line = await waitUntil(() => log.find(({ request_id }) => request_id === id), {
          what: `the log line of ${operation}`,
        });
        expect(line).toMatchObject({ operation, status, msg: 'request' });
        expect(log.filter(({ request_id }) => request_id === id)).toHaveLength(1);
      }
    });
  });

  describe('with an Idempotency-Key', () => {
    describe.each(withKey)('$id', (operation) => {
      const status = expect.toBeOneOf(acceptedStatuses(operation));

      test('repeats its answer to the same request on every web process, and rejects another: 422', async () => {
        const headers = { 'Idempotency-Key': uuidv7() };
        const request = { ...(await access().example(operation, fleet().workspace)), headers };
        const first = await accept(operation, request);
        expect(first).toMatchObject({ status });
        const { port: other } = fleet().edges[1]!;
        const second = await accept(operation, request, other);
        expect({ status: second.status, body: second.body }).toEqual({
          status: first.status,
          body: first.body,
        });
        const changed = operation.body
          ? { ...request, json: { ...(request.json as Record<string, Json>), changed: true } }
          : { ...request, path: `${request.path}?changed=true` };
        const third = await accept(operation, changed, other);
        expectError(operation, third, 'idempotencyKeyReused');
      });

      test('rejects an invalid key: 400', async () => {
        const answer = await accept(operation, { headers: { 'Idempotency-Key': 'two words' } });
        expectError(operation, answer, 'invalidIdempotencyKey');
      });
    });
  });

  staysPrivate();
});

/** Returns the body of a request outside of all operations, in the form of the given operation's protocol. */
function noOperation({ auth, errorBody }: Operation, message: string, status: number): Json {
  return (auth && errorBody?.({ message, status })) || { message };
}
