import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { acceptedStatuses, expectError } from './expected.ts';
import { contractScene, operations } from './scene.ts';

const withKey = operations.filter(({ method }) => method === 'POST');

describe.each(eitherBackend)(
  'every operation that takes an Idempotency-Key, with the queue in %s',
  (backend) => {
    const { accept, access, fleet, staysPrivate } = contractScene(backend, { edges: 2 });

    describe.each(withKey)('$id', (operation) => {
      const status = expect.toBeOneOf(acceptedStatuses(operation));

      test('answers the same request with the same answer on every edge, and refuses another: 422', async () => {
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
          : { ...(await access().example(operation, fleet().workspace)), headers };
        const third = await accept(operation, changed, other);
        expectError(operation, third, 'idempotencyKeyReused');
      });

      test('refuses a key that is none: 400', async () => {
        const answer = await accept(operation, { headers: { 'Idempotency-Key': 'two words' } });
        expectError(operation, answer, 'invalidIdempotencyKey');
      });
    });

    staysPrivate(withKey.length);
  },
);
