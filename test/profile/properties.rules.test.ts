import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { LongStrings } from '../../src/profile/attribute-rule.ts';
import type { Json } from '../../src/profile/json.ts';
import { checkProperties as check, MAX_PROPERTY_BYTES } from '../../src/profile/properties.ts';

const checkProperties = (sent: unknown, kind: 'events' | 'purchases', longStrings: LongStrings) =>
  check(sent, { kind, longStrings, maxBytes: MAX_PROPERTY_BYTES });

const invalid = { error: "Invalid 'properties' field", reason: 'invalid', field: 'properties' };

test('absent, null and empty properties are omitted', () => {
  for (const value of [undefined, null, {}, []]) expect(checkProperties(value, 'events', 'cut')).toEqual({});
});

test.each([['x'], [1], [true], [[{ a: 1 }]]])('properties that are %j are rejected', (value) => {
  expect(checkProperties(value, 'events', 'cut')).toEqual(invalid);
});

test('numbers, booleans, strings and null are kept as sent', () => {
  const properties = { i: 1, f: 1.5, b: false, s: '', n: null };
  expect(checkProperties(properties, 'events', 'cut')).toEqual({ properties });
});

test('dates are kept as the strings that were sent', () => {
  const properties = { at: '2026-01-31T12:00:00:000+0000', on: '2026-01-31' };
  expect(checkProperties(properties, 'events', 'cut')).toEqual({ properties });
});

test('properties that need no change are not copied', () => {
  const properties = { a: 1 };
  expect(checkProperties(properties, 'events', 'cut')).toHaveProperty('properties', properties);
});

describe.each(['time', 'event_name'])('an event property named %s', (name) => {
  test('is rejected', () => expect(checkProperties({ [name]: 1 }, 'events', 'cut')).toEqual(invalid));
});

describe.each(['time', 'product_id', 'quantity', 'event_name', 'price', 'currency'])(
  'a purchase property named %s',
  (name) => {
    test('is rejected', () =>
      expect(checkProperties({ a: 1, [name]: 1 }, 'purchases', 'cut')).toEqual(invalid));
  },
);

test('an event property may be named price', () => {
  expect(checkProperties({ price: 1 }, 'events', 'cut')).toEqual({ properties: { price: 1 } });
});

describe('a property name', () => {
  test('must not be empty', () => {
    expect(checkProperties({ '': 1 }, 'events', 'cut')).toEqual({
      error: "'properties.' is not valid: a name must not be empty",
      reason: 'invalid',
      field: 'properties.',
    });
  });
  test('must not start with $', () => {
    expect(checkProperties({ $a: 1 }, 'events', 'cut')).toEqual({
      error: "'properties.$a' is not valid: a name must not start with '$'",
      reason: 'invalid',
      field: 'properties.$a',
    });
  });
  test('may have a $ elsewhere', () => {
    expect(checkProperties({ a$: 1 }, 'events', 'cut')).toEqual({ properties: { a$: 1 } });
  });
  test('has at most 255 characters', () => {
    expect(checkProperties({ ['n'.repeat(255)]: 1 }, 'events', 'cut')).toEqual({
      properties: { ['n'.repeat(255)]: 1 },
    });
    expect(checkProperties({ ['n'.repeat(256)]: 1 }, 'events', 'cut')).toEqual({
      properties: { ['n'.repeat(255)]: 1 },
      warnings: [`'properties.${'n'.repeat(64)}…' was cut to 255 characters in its name`],
    });
    expect(checkProperties({ ['n'.repeat(256)]: 1 }, 'events', 'refuse')).toEqual({
      error: `'properties.${'n'.repeat(64)}…' is not valid: a name must be at most 255 characters`,
      reason: 'too_large',
      field: `properties.${'n'.repeat(64)}…`,
    });
  });
  test('that equals another one after it was cut: the last one counts', () => {
    const n = 'n'.repeat(255);
    for (const [one, other] of [
      [`${n}1`, `${n}2`],
      [n, `${n}2`],
      [`${n}1`, n],
    ] as const) {
      const checked = checkProperties({ [one]: 1, [other]: 2 }, 'events', 'cut');
      expect(checked).toMatchObject({ properties: { [n]: 2 } });
      expect((checked as { warnings: string[] }).warnings.at(-1)).toBe(
        `'properties.${'n'.repeat(64)}…' is the name of two members when it is cut to 255 characters: the last one counts`,
      );
    }
  });
  test('may be the name of an inherited member', () => {
    const sent = JSON.parse('{"__proto__":{"a":1},"constructor":"c","toString":[1]}');
    const { properties } = checkProperties(sent, 'events', 'cut') as { properties: Record<string, Json> };
    expect(JSON.stringify(properties)).toBe('{"__proto__":"{\\"a\\":1}","constructor":"c","toString":[1]}');
    expect(Object.getPrototypeOf(properties)).toBe(Object.prototype);
    expect(({} as { a?: unknown }).a).toBeUndefined();
  });
});

describe('a string', () => {
  test('has at most 255 characters, and an emoji is one', () => {
    for (const text of ['x'.repeat(255), '👍'.repeat(255)]) {
      expect(checkProperties({ a: text, b: [text] }, 'events', 'cut')).toHaveProperty('properties');
    }
    for (const character of ['x', '👍']) {
      const [text, cut] = [character.repeat(256), character.repeat(255)];
      const warnings = ["'properties.a' was cut to 255 characters"];
      const error = "'properties.a' is not valid: a string must be at most 255 characters";
      expect(checkProperties({ a: text, b: 1 }, 'events', 'cut')).toEqual({
        properties: { a: cut, b: 1 },
        warnings,
      });
      expect(checkProperties({ a: [[text]] }, 'events', 'cut')).toEqual({
        properties: { a: [[cut]] },
        warnings,
      });
      expect(checkProperties({ a: text }, 'events', 'refuse')).toEqual({
        error,
        reason: 'too_large',
        field: 'properties.a',
      });
      expect(checkProperties({ a: [[text]] }, 'events', 'refuse')).toEqual({
        error,
        reason: 'too_large',
        field: 'properties.a',
      });
    }
  });
  test('that is cut leaves an object its whole JSON text', () => {
    const object = { b: 'x'.repeat(300) };
    expect(checkProperties({ a: object, c: 'x'.repeat(256) }, 'events', 'cut')).toMatchObject({
      properties: { a: JSON.stringify(object), c: 'x'.repeat(255) },
    });
  });
  test('is counted with its original length against the size limit of properties with arrays', () => {
    expect(checkProperties({ a: 'x'.repeat(51_200), b: [1] }, 'events', 'cut')).toHaveProperty('error');
    expect(checkProperties({ a: 'x'.repeat(51_200), b: 1 }, 'events', 'cut')).toHaveProperty('properties');
  });
});

describe('an array', () => {
  test('is kept', () => {
    expect(checkProperties({ a: [1, 'x', true, null, ['y']] }, 'events', 'cut')).toEqual({
      properties: { a: [1, 'x', true, null, ['y']] },
    });
  });
  test.each(['2026-01-31T12:00:00Z', '2026-01-31', '2026-01-31T12:00:00:000Z'])(
    'must not contain %s',
    (time) => {
      const error = "'properties.a' is not valid: an array must not contain datetimes";
      expect(checkProperties({ a: ['x', time] }, 'events', 'cut')).toEqual({
        error,
        reason: 'invalid',
        field: 'properties.a',
      });
      expect(checkProperties({ a: [[time]] }, 'events', 'cut')).toEqual({
        error,
        reason: 'invalid',
        field: 'properties.a',
      });
    },
  );
  test('may contain texts that only look like a date', () => {
    expect(checkProperties({ a: ['2026-02-30', '20260131', '1-2-2026'] }, 'events', 'cut')).toHaveProperty(
      'properties',
    );
  });
});

describe('an object', () => {
  test('is kept as its JSON text', () => {
    expect(checkProperties({ a: { b: [1, { c: 'x' }] }, d: 1 }, 'events', 'cut')).toEqual({
      properties: { a: '{"b":[1,{"c":"x"}]}', d: 1 },
    });
  });
  test('inside an array is kept as its JSON text too', () => {
    expect(checkProperties({ a: [{ at: '2026-01-31T12:00:00Z' }, 'x'] }, 'events', 'cut')).toEqual({
      properties: { a: ['{"at":"2026-01-31T12:00:00Z"}', 'x'] },
    });
  });
  test('may have a JSON text of more than 255 characters', () => {
    expect(checkProperties({ a: { b: 'x'.repeat(1000) } }, 'events', 'cut')).toHaveProperty('properties');
  });
});

test('with more than 256 names keeps the first 256', () => {
  const entries = Array.from({ length: 300 }, (_, i): [string, Json] => [`p${i}`, i]);
  expect(checkProperties(Object.fromEntries(entries), 'events', 'cut')).toEqual({
    properties: Object.fromEntries(entries.slice(0, 256)),
  });
  const structured = Object.fromEntries([['o', { a: 1 }], ...entries]);
  expect(
    Object.keys((checkProperties(structured, 'events', 'cut') as { properties: object }).properties),
  ).toHaveLength(256);
});

test('properties with arrays or objects have at most 51,200 bytes of JSON', () => {
  const tooLarge = {
    error: "'properties' is not valid: with arrays or objects it must be at most 51200 bytes of JSON",
    reason: 'too_large',
    field: 'properties',
  };
  const frame = Buffer.byteLength(JSON.stringify({ a: { b: '' } }));
  expect(checkProperties({ a: { b: 'x'.repeat(51_200 - frame) } }, 'events', 'cut')).toHaveProperty(
    'properties',
  );
  expect(checkProperties({ a: { b: 'x'.repeat(51_201 - frame) } }, 'events', 'cut')).toEqual(tooLarge);
  expect(checkProperties({ a: { b: 'é'.repeat(26_000) } }, 'events', 'cut')).toEqual(tooLarge);
});

test('properties without arrays and objects are limited only by their names and strings', () => {
  const entries = Array.from({ length: 256 }, (_, i) => [`p${i}`, 'é'.repeat(255)]);
  expect(checkProperties(Object.fromEntries(entries), 'events', 'cut')).toHaveProperty('properties');
});

test('nesting 100,000 deep is rejected without overflowing the stack', () => {
  const deep = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000));
  expect(checkProperties({ a: deep }, 'events', 'cut')).toHaveProperty('error');
  expect(checkProperties({ a: { b: deep } }, 'purchases', 'cut')).toHaveProperty('error');
});

test('every JSON value is handled without an exception, and the result contains no object', () => {
  const holdsObject = (value: Json): boolean =>
    Array.isArray(value) ? value.some(holdsObject) : typeof value === 'object' && value !== null;
  fc.assert(
    fc.property(fc.oneof(fc.jsonValue(), fc.object({ maxDepth: 4 }).map(toJson)), (value) => {
      const checked = checkProperties(value, 'events', 'cut');
      if ('error' in checked) expect(checked.error).toBeTypeOf('string');
      else
        for (const property of Object.values(checked.properties ?? {}))
          expect(holdsObject(property)).toBe(false);
    }),
  );
});

function toJson(value: object): Json {
  return JSON.parse(JSON.stringify(value) ?? 'null');
}
