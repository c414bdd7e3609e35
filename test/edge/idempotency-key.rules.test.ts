import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { readIdempotencyKey } from '../../src/edge/idempotency-key.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import { canonicalPieces, type Json } from '../../src/profile/json.ts';

const textOf = (value: Json) => [...canonicalPieces(value)].join('');

describe('the text by which bodies are compared', () => {
  test('is equal for equal values regardless of the order of members, and only for those', () => {
    const json = fc.jsonValue({ maxDepth: 3 }).map((value) => JSON.parse(JSON.stringify(value)) as Json);
    fc.assert(
      fc.property(json, json, (one, other) => {
        expect(textOf(turned(one))).toBe(textOf(one));
        expect(textOf(one) === textOf(other)).toBe(isDeepStrictEqual(one, other));
      }),
      { numRuns: 1000 },
    );
  });

  test.each([
    [{ a: 1 }, { a: '1' }],
    [{ a: [1, 2] }, { a: [2, 1] }],
    [{ a: [[1], 2] }, { a: [[1, 2]] }],
    [{ a: null }, {}],
    [{ a: {} }, { a: [] }],
    [{ a: 'b,c' }, { a: ['b', 'c'] }],
  ])('distinguishes %j from %j', (one, other) => {
    expect(textOf(one)).not.toBe(textOf(other as Json));
  });

  test('accepts any member name', () => {
    const own = JSON.parse('{"__proto__": {"polluted": true}, "constructor": 1}');
    expect(textOf(own)).toContain('__proto__');
    expect(textOf(own)).not.toBe(textOf({ constructor: 1 } as unknown as Json));
    expect(({} as { polluted?: boolean }).polluted).toBeUndefined();
  });

  test('can be built for very deep and very wide bodies', () => {
    const deep = JSON.parse(`${'['.repeat(1_000_000)}1${']'.repeat(1_000_000)}`);
    expect(textOf(deep).length).toBeGreaterThan(2_000_000);
    const wide = Object.fromEntries(Array.from({ length: 100_000 }, (_, index) => [`k${index}`, index]));
    expect(textOf(wide).length).toBeGreaterThan(1_000_000);
  });
});

/** Reverses the order of members in all objects of a value. */
function turned(value: Json): Json {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(turned);
  return Object.fromEntries(
    Object.entries(value)
      .reverse()
      .map(([name, member]) => [name, turned(member)]),
  );
}

describe('a key', () => {
  const requested = {
    ownerId: uuidv7(),
    operation: usersTrack('service_id'),
    params: {},
    query: {},
    body: { events: [] },
  };
  const hashOf = async (header: string) =>
    (await readIdempotencyKey(header, requested))?.hash.toString('hex');

  test('is the same with and without quotes and escapes', async () => {
    expect(await hashOf('"abc"')).toBe(await hashOf('abc'));
    expect(await hashOf('"a\\"b\\\\c"')).toBe(await hashOf('a"b\\c'));
    expect(await hashOf('"abc')).not.toBe(await hashOf('abc'));
    expect(await hashOf('ABC')).not.toBe(await hashOf('abc'));
    expect(await hashOf('x'.repeat(255))).toBeDefined();
  });

  test('covers a request with its path parameters, its query and its body', async () => {
    const prints = await Promise.all(
      [
        requested,
        { ...requested, body: {} },
        { ...requested, params: { id: '1' } },
        { ...requested, query: { attributes: 'id' } },
      ].map(async (request) => (await readIdempotencyKey('key', request))!.fingerprint.toString('hex')),
    );
    expect(new Set(prints).size).toBe(4);
  });

  test('is undefined without the header, and for methods other than POST', async () => {
    expect(await readIdempotencyKey(undefined, requested)).toBeUndefined();
    const read = { ...requested, operation: { ...requested.operation, method: 'GET' as const } };
    expect(await readIdempotencyKey('two words', read)).toBeUndefined();
  });

  test('yields to other work while a large body is hashed', async () => {
    const body = { events: Array.from({ length: 400_000 }, (_, index) => index) };
    let turns = 0;
    const timer = setInterval(() => turns++, 0);
    await readIdempotencyKey('key', { ...requested, body });
    clearInterval(timer);
    expect(turns).toBeGreaterThan(2);
  });
});
