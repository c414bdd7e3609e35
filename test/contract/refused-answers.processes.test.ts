import { describe, expect, test } from 'vitest';
import type { Operation } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import { permissions } from '../../src/schemas/permissions.ts';
import { parsers, type SentArrays } from '../clients/parsers.ts';
import { type ApiAnswer, type ApiRequest, exampleOf } from '../setup/api.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { contractScene, operations } from './scene.ts';

// SCIM has its own form of errors, which test/scim covers.
const withApiKey = operations.filter(({ auth }) => auth === undefined);
const withBody = withApiKey.filter(({ body }) => body);
const tracking = withApiKey.filter(({ id }) => id.startsWith('users.track'));

describe('how five clients read rejections', () => {
  const { accept, call, access, fleet, makeKey } = contractScene('redis');

  /** Expects each client to read the answer, and the answer to have this status. */
  function expectReadable(answer: ApiAnswer, status: number, json: Json | undefined): void {
    expect(answer.status).toBe(status);
    const { headers, body } = answer;
    const read = { status, body, header: (name: string) => headers.get(name) };
    for (const [client, parse] of Object.entries(parsers))
      expect(() => parse(read, arraysOf(json)), `${client} reads ${JSON.stringify(body)}`).not.toThrow();
    if (status !== 400) expect(Object.keys(body)).not.toContain('errors');
  }

  const refuse = async (operation: Operation, status: number, change: ApiRequest) => {
    const { json } = await access().example(operation, fleet().workspace);
    expectReadable(
      await accept(operation, { json, ...change }),
      status,
      change.raw ? {} : (change.json ?? json),
    );
  };

  describe.each(withApiKey)('$id', (operation) => {
    test('401, 403 and 404 have a message and no errors', async () => {
      await refuse(operation, 401, { key: 'unknown' });
      await refuse(operation, 403, { key: await makeKey(permissions, ['192.0.2.1']) });
      const { method, path } = exampleOf(operation);
      const below = await call({ method: method!, path: `${path!.split('?')[0]}/nowhere/at/all` });
      expectReadable(below, 404, undefined);
    });

    test('429 has a message, the time of a retry and no errors', async () => {
      const workspace = await createWorkspace(fleet().pool, `refused-${operation.id}`);
      await fleet().pool.query('insert into rate_limits values ($1, $2, 1, 3600)', [
        workspace.id,
        operation.bucket,
      ]);
      await accept(operation, {}, undefined, workspace);
      const { json } = await access().example(operation, workspace);
      const limited = await accept(operation, { json }, undefined, workspace);
      expectReadable(limited, 429, json);
      expect(limited.body.detail).toMatch(
        / limit of 1 requests per 3600 s in the bucket `[\w.]+`; .+ allowed at 20/,
      );
    });
  });

  describe.each(withBody)('$id, which takes a body,', (operation) => {
    test('413 and 415 have a message and no errors', async () => {
      await refuse(operation, 413, { raw: `{"padding":"${' '.repeat(5 * 1024 * 1024)}"}` });
      await refuse(operation, 415, { headers: { 'content-type': 'text/plain' } });
      await refuse(operation, 415, { headers: { 'content-encoding': 'br' } });
    });

    test.runIf(operation.method === 'POST')('400 for an invalid Idempotency-Key is readable', () =>
      refuse(operation, 400, { headers: { 'idempotency-key': 'not ascii \u00e9' } }),
    );

    test.runIf(operation.method === 'POST' && !operation.readsOnly)(
      '422 for a reused Idempotency-Key has a message and no errors',
      async () => {
        const headers = { 'idempotency-key': `refused-${operation.id}` };
        await accept(operation, { headers });
        const { json } = await access().example(operation, fleet().workspace);
        const changed = { ...(json as object), other: 1 };
        await refuse(operation, 422, { headers, json: changed });
      },
    );

    test('400 for JSON that ends early names line and column', async () => {
      const { status, body } = await accept(operation, { raw: '{"a":\n' });
      expect(status).toBe(400);
      expect(body.message).toContain('(line 2, column 1)');
    });
  });

  describe.each(tracking)('$id', (operation) => {
    test('400 for too many objects names the limit and the first object over it', async () => {
      const bulk = operation.id.endsWith('bulk');
      const objects = (count: number) => Array.from({ length: count }, (_, n) => ({ external_id: `u${n}` }));
      const json = bulk
        ? { attributes: objects(600), events: objects(401) }
        : { attributes: objects(2), events: objects(76) };
      const answer = await accept(operation, { json });
      expectReadable(answer, 400, { attributes: [], events: json.events });
      expect(answer.body).toMatchObject({
        code: 'too_many_objects',
        detail: expect.stringContaining(
          bulk
            ? "'events' has 401 objects; at most 1000 objects in the three arrays together, of which 400 are left for 'events'."
            : "'events' has 76 objects; at most 75 objects per array.",
        ),
      });
      expect(answer.body.errors).toEqual([
        { type: 'Max Input Length Exceeded', input_array: 'events', index: bulk ? 400 : 75 },
      ]);
    });

    test('400 for objects that are all invalid names each of them', async () => {
      await refuse(operation, 400, { json: { attributes: [{}, 7] } });
    });
  });

  // Keep this test last: it stops the Redis of the fleet.
  test('503 of every operation has a message and no errors', async () => {
    await fleet().redis!.stop();
    for (const operation of withApiKey) await refuse(operation, 503, {});
  });
});

function arraysOf(json: Json | undefined): SentArrays {
  return Object.fromEntries(
    Object.entries((json ?? {}) as Record<string, Json>).filter(([, value]) => Array.isArray(value)),
  ) as SentArrays;
}
