import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { type AcceptedObject, type Envelope, keysOf } from '../../src/jobs/envelope.ts';
import {
  encodeTraces,
  findTrace,
  type InputArray,
  inputArrayOf,
  inputArrays,
  listTraces,
  userBytes,
} from '../../src/jobs/traces.ts';
import { allOperations } from '../../src/operations/index.ts';
import type { Identifier } from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import { pack } from '../../src/queue/pack.ts';
import { callerOf } from '../operations/caller.ts';
import { lengthOf } from '../setup/length.ts';

const kinds = ['attributes', 'events', 'purchases'] as const;
const workspaces = [uuidv7(), uuidv7(), uuidv7()];

const requests = fc.array(
  fc.record({
    workspace: fc.nat(2),
    total: fc.option(fc.integer({ min: 1, max: 100_000 }), { nil: undefined }),
    positions: fc.array(fc.tuple(fc.constantFrom(...kinds), fc.oneof(fc.nat(80), fc.nat(3_000_000))), {
      minLength: 1,
      maxLength: 80,
    }),
  }),
  { minLength: 1, maxLength: 30 },
);

function envelopeOf(
  given: { workspace: number; total?: number | undefined; positions: [string, number][] }[],
): Envelope {
  return {
    requests: given.map(({ workspace, total, positions }) => ({
      request_id: uuidv7(),
      workspace_id: workspaces[workspace]!,
      accepted_at: 'now',
      count: positions.length,
      ...(total !== undefined && { objects: total }),
    })),
    objects: given.flatMap(({ positions }) =>
      positions.map(([kind, index]) => ({ kind, index }) as unknown as AcceptedObject),
    ),
  };
}

test('every request of an envelope is found with its objects, in its own workspace only', () => {
  fc.assert(
    fc.property(requests, (given) => {
      const envelope = envelopeOf(given);
      const bytes = encodeTraces(envelope);
      given.forEach(({ workspace, total, positions }, position) => {
        const { request_id } = envelope.requests[position]!;
        expect(findTrace(bytes!, request_id, workspaces[workspace]!)).toEqual({
          objects: positions.map(([input_array, index]) => ({ input_array, index })),
          total: total ?? positions.length,
        });
        expect(findTrace(bytes!, request_id, workspaces[(workspace + 1) % 3]!)).toBeUndefined();
      });
      expect(findTrace(bytes!, uuidv7(), workspaces[0]!)).toBeUndefined();
    }),
    { numRuns: lengthOf({ short: 200, long: 500 }) },
  );
});

describe('the API key that sent a request', () => {
  const [first, second] = [uuidv7(), 'ffffffff-ffff-4fff-bfff-ffffffffffff'];
  /** The key of each request as `pack` writes it: undefined if it equals the previous request's key. */
  const sent = [first, undefined, second, null, undefined, first];
  const meant = [first, first, second, undefined, undefined, first];
  const one = { workspace: 0, positions: [['events', 0]] as [string, number][] };

  function sentBy(keys: (string | null | undefined)[]): Envelope {
    const envelope = envelopeOf(keys.map(() => one));
    keys.forEach((key_id, at) => {
      envelope.requests[at]!.key_id = key_id;
    });
    return envelope;
  }

  test('is found with the request, whichever requests came before', () => {
    const envelope = sentBy(sent);
    const bytes = encodeTraces(envelope)!;
    const result = envelope.requests.map(({ request_id }) => findTrace(bytes, request_id, workspaces[0]!));
    expect(result.map((trace) => trace?.key_id)).toEqual(meant);
    for (const trace of result) expect(trace?.objects).toEqual([{ input_array: 'events', index: 0 }]);
  });

  test('is stored as pack writes it, in every lane', () => {
    const batch = Array.from({ length: 40 }, (_, index) => ({
      request: {
        request_id: uuidv7(),
        workspace_id: workspaces[index % 2]!,
        accepted_at: 'now',
        key_id: [first, first, second, undefined][(index >> 1) % 4],
      },
      objects: ['a', 'b'].map(
        (who, offset) =>
          ({
            kind: 'events',
            id: uuidv7(),
            index: offset,
            identifier: { external_id: `${who}${index}` },
          }) as never,
      ),
      bytes: 100,
    }));
    const entries = pack(batch, 4, 1000);
    const wanted = new Map(batch.map(({ request }) => [request.request_id, request.key_id]));
    for (const { envelope } of entries) {
      const wire = JSON.parse(JSON.stringify(envelope)) as Envelope;
      const keys = keysOf(wire.requests);
      expect(keys).toEqual(wire.requests.map(({ request_id }) => wanted.get(request_id)));
    }
  });

  test('takes 21 bytes for the first request (UUIDv7), and no byte for later ones', () => {
    const sizeOf = (keys: (string | undefined)[]) => encodeTraces(sentBy(keys))!.length;
    // The last bytes of a key are random; one key in sixteen begins with a small number and takes a byte
    // less.
    const key = '019abc94-4f5e-7c3d-9e8f-a1b2c3d4e5f6';
    expect(sizeOf([key]) - sizeOf([undefined])).toBe(21);
    expect(sizeOf([key, undefined]) - sizeOf([undefined, undefined])).toBe(21);
  });

  test('is ignored by a release that does not know it', () => {
    // Rule of that release: a run of an unknown array is skipped, whatever its numbers are.
    const codes = Object.values(inputArrays);
    for (const code of [101, 102, 103, 104]) expect(codes).not.toContain(code);
  });
});

test('a request of one object, or of one whole array, takes 22 bytes, and the first one 16 more', () => {
  const one = { workspace: 0, positions: [['events', 0]] as [string, number][] };
  const whole = { workspace: 0, positions: Array.from({ length: 75 }, (_, index) => ['events', index]) };
  const sizeOf = (...given: object[]) => encodeTraces(envelopeOf(given as never))!.length;
  expect(sizeOf(one)).toBe(22 + 16);
  expect(sizeOf(one, one)).toBe(2 * 22 + 16);
  expect(sizeOf(whole)).toBe(22 + 16);
});

describe('the checksum of an identifier', () => {
  const [workspaceId, other] = workspaces as [string, string];
  const ada = { external_id: 'ada' };
  const sentFor = (...identifiers: object[]): Envelope => ({
    requests: identifiers.map(() => ({
      ...{ request_id: uuidv7(), workspace_id: workspaceId, accepted_at: 'now', count: 1 },
    })),
    objects: identifiers.map((identifier) => ({ kind: 'events', index: 0, identifier }) as never),
  });
  const checksum = (identifier: Identifier, workspace = workspaceId) =>
    userBytes(workspace, identifier).toString('hex');

  test('is listed with the requests that name the identifier, and is part of the bytes', () => {
    const alias = { user_alias: { alias_label: 'crm', alias_name: 'ada' } };
    const bytes = encodeTraces(sentFor(ada, { external_id: 'grace' }, alias))!;
    const users = listTraces(bytes, workspaceId).map((trace) => trace.users);
    expect(users).toEqual([[checksum(ada)], [checksum({ external_id: 'grace' })], [checksum(alias)]]);
    expect(bytes.includes(userBytes(workspaceId, ada))).toBe(true);
    expect(bytes.includes(userBytes(workspaceId, { email: 'ada' }))).toBe(false);
  });

  test('has 6 bytes, and is written once for a request that names a user often', () => {
    const sizeOf = (...identifiers: object[]) => {
      const envelope = sentFor(ada);
      envelope.requests[0]!.count = identifiers.length;
      envelope.objects = identifiers.map(
        (identifier, index) => ({ kind: 'events', index, identifier }) as never,
      );
      return encodeTraces(envelope)!.length;
    };
    expect(userBytes(workspaceId, ada)).toHaveLength(6);
    expect(sizeOf(ada)).toBe(22 + 16 + 6);
    const grace = { external_id: 'grace' };
    expect(sizeOf(ada, grace, ada, ada, grace)).toBe(22 + 16 + 2 * 6);
  });

  test('differs between workspaces and between similar identifiers', () => {
    expect(checksum(ada)).not.toBe(checksum(ada, other));
    const all = new Set<string>();
    for (let number = 0; number < 20_000; number++) all.add(checksum({ external_id: `user-${number}` }));
    expect(all.size).toBe(20_000);
  });

  test('of both users of a merge is written, and of an attribute object only the user it names', () => {
    const selector = (identifier: Identifier) => ({ identifier });
    const envelope = sentFor(ada, ada);
    const mail = { email: 'a@example.com' };
    envelope.objects = [
      { kind: 'merge', index: 0, merge: selector(mail), keep: selector(ada) } as never,
      { kind: 'attributes', index: 0, identifier: ada, standard: mail } as never,
    ];
    const [merge, attributes] = listTraces(encodeTraces(envelope)!, workspaceId);
    expect(merge!.users).toEqual([checksum(mail), checksum(ada)]);
    expect(attributes!.users).toEqual([checksum(ada)]);
  });
});

test.each([
  ['a replay', { requests: [], objects: [], replay: true }],
  ['a mark', { requests: [], objects: [] }],
  ['null', null],
  ['a text', 'envelope'],
  ['objects of no request', { requests: [], objects: [{ kind: 'events', index: 0 }, null] }],
  ['a request without a count', { requests: [{}], objects: [{ kind: 'events', index: 0 }] }],
  ['a request without an id', { requests: [{ count: 1 }], objects: [{ kind: 'events', index: 0 }] }],
])('%s has no traces, and causes no error', (_, envelope) => {
  expect(encodeTraces(envelope as unknown as Envelope)).toBeUndefined();
});

describe('the array of an object', () => {
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

  test('has a number of its own, which is never reused', () => {
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
