import { describe, expect, test } from 'vitest';
import { errors } from '../../src/errors.ts';
import type { Operation } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { acceptedStatus, exampleOf, send } from '../setup/api.ts';
import { expectCommonHeaders } from '../setup/common-headers.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { acceptedStatuses, expectFit } from './expected.ts';
import { contractScene, operations } from './scene.ts';

describe.each(eitherBackend)('every operation, with the queue in %s', (backend) => {
  const { ask, accept, fleet, port, staysPrivate } = contractScene(backend);

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

    test('answers another method with 405 and Allow, a path below it with 404', async () => {
      const path = exampleOf(operation).path!.split('?')[0]!;
      const allowed = operations.filter((other) => other.path === operation.path).map(({ method }) => method);
      const method = ['DELETE', 'PATCH', 'PUT', 'POST', 'GET'].find(
        (name) => !allowed.includes(name as never),
      )!;
      const other = await ask({ method, path, key: fleet().workspace.key });
      expect(other).toMatchObject({ status: 405, body: noOperation(operation, 'Method Not Allowed', 405) });
      expect(other.headers.get('allow')?.split(', ')).toEqual(allowed);
      const below = await ask({
        method: operation.method,
        path: `${path}/nowhere/at/all`,
        key: fleet().workspace.key,
      });
      expect(below).toMatchObject({ status: 404, body: noOperation(operation, 'Not Found', 404) });
    });
  });

  test('an unknown path is 404, whoever asks', async () => {
    for (const path of ['/', '/nowhere', '/users', '/users/track/', '/USERS/TRACK/x', '/%ff', '//']) {
      for (const key of [undefined, fleet().workspace.key]) {
        const { status, body } = await ask({ method: 'POST', path, key, json: {} });
        if (path !== '/users/track/')
          expect({ path, status, body }).toEqual({ path, status: 404, body: { message: 'Not Found' } });
      }
    }
  });

  test('whoever opens the address itself is told where the API is described: 404', async () => {
    const { status, body } = await send(port(), { method: 'GET', path: '/' });
    expect({ status, body }).toEqual({ status: 404, body: { message: errors.nothingHere.message } });
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
      Object.values(methods as Record<string, { operationId: string }>).map(({ operationId }) => operationId),
    );
    // The document goes by paths, the list by the specification.
    expect(named.sort()).toEqual(operations.map(({ id }) => id).sort());
  });

  test('the pages beside the operations have the headers of every answer, with no limit', async () => {
    for (const path of ['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs']) {
      const { headers } = await fetch(`http://127.0.0.1:${port()}${path}`);
      expectCommonHeaders(headers, /^$/);
    }
  });

  test('one log line per request to an operation, with the id of its answer', async () => {
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

  staysPrivate();
});

/** The body of what is no operation, beside one: in the form of its protocol. */
function noOperation({ auth, errorBody }: Operation, message: string, status: number): Json {
  return (auth && errorBody?.(message, undefined, status)) || { message };
}
