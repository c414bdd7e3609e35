import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import type { AcceptedObject, Envelope } from '../../src/jobs/envelope.ts';
import {
  encodeTraces,
  findTrace,
  type InputArray,
  inputArrayOf,
  inputArrays,
} from '../../src/jobs/traces.ts';
import { allOperations } from '../../src/operations/index.ts';
import type { Json } from '../../src/profile/json.ts';
import { callerOf } from '../operations/caller.ts';

const kinds = ['attributes', 'events', 'purchases'] as const;
const workspaces = [uuidv7(), uuidv7(), uuidv7()];

const requests = fc.array(
  fc.record({
    workspace: fc.nat(2),
    total: fc.option(fc.integer({ min: 1, max: 100_000 }), { nil: undefined }),
    places: fc.array(fc.tuple(fc.constantFrom(...kinds), fc.oneof(fc.nat(80), fc.nat(3_000_000))), {
      minLength: 1,
      maxLength: 80,
    }),
  }),
  { minLength: 1, maxLength: 30 },
);

function envelopeOf(
  given: { workspace: number; total?: number | undefined; places: [string, number][] }[],
): Envelope {
  return {
    requests: given.map(({ workspace, total }) => ({
      request_id: uuidv7(),
      workspace_id: workspaces[workspace]!,
      accepted_at: 'now',
      ...(total !== undefined && { objects: total }),
    })),
    objects: given.flatMap(({ places }, request) =>
      places.map(([kind, index]) => ({ kind, index, request }) as unknown as AcceptedObject),
    ),
  };
}

test('every request of an envelope is found, with the places of its objects; in no other workspace', () => {
  fc.assert(
    fc.property(requests, (given) => {
      const envelope = envelopeOf(given);
      const bytes = encodeTraces(envelope);
      given.forEach(({ workspace, total, places }, place) => {
        const { request_id } = envelope.requests[place]!;
        expect(findTrace(bytes!, request_id, workspaces[workspace]!)).toEqual({
          objects: places.map(([input_array, index]) => ({ input_array, index })),
          total: total ?? places.length,
        });
        expect(findTrace(bytes!, request_id, workspaces[(workspace + 1) % 3]!)).toBeUndefined();
      });
      expect(findTrace(bytes!, uuidv7(), workspaces[0]!)).toBeUndefined();
    }),
    { numRuns: 500 },
  );
});

test('a request of one object, or of one whole array, takes 22 bytes, the first one of an envelope 16 more', () => {
  const one = { workspace: 0, places: [['events', 0]] as [string, number][] };
  const whole = { workspace: 0, places: Array.from({ length: 75 }, (_, index) => ['events', index]) };
  const sizeOf = (...given: object[]) => encodeTraces(envelopeOf(given as never))!.length;
  expect(sizeOf(one)).toBe(22 + 16);
  expect(sizeOf(one, one)).toBe(2 * 22 + 16);
  expect(sizeOf(whole)).toBe(22 + 16);
});

test.each([
  ['a replay', { requests: [], objects: [], replay: true }],
  ['a mark', { requests: [], objects: [] }],
  ['null', null],
  ['a text', 'envelope'],
  ['objects of no request', { requests: [], objects: [{ kind: 'events', index: 0, request: 0 }, null] }],
  ['a request without an id', { requests: [{}], objects: [{ kind: 'events', index: 0, request: 0 }] }],
])('%s says nothing, and is no error', (_, envelope) => {
  expect(encodeTraces(envelope as unknown as Envelope)).toBeUndefined();
});

describe('the array that an object stood in', () => {
  const queued = allOperations('service_id').filter((operation) => operation.kind === 'queued');

  test.each(queued)('is a member of the body: $id', ({ plan, example }) => {
    const body = example.body as Record<string, Json>;
    const { objects } = plan(callerOf(workspaces[0]!), body);
    for (const object of objects) {
      const given = body[inputArrayOf(object)!];
      expect(given).toBeDefined();
      if (Array.isArray(given)) expect(given.length).toBeGreaterThan(object.index);
    }
  });

  test('has a number of its own, which is never another', () => {
    const codes = Object.values(inputArrays);
    expect(new Set(codes).size).toBe(codes.length);
    const asReleased: Partial<Record<InputArray, number>> = {
      attributes: 1,
      merge_updates: 9,
      external_id: 20,
    };
    expect(inputArrays).toMatchObject(asReleased);
  });
});
