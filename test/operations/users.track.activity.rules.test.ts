import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { now, type Objects, planner } from './plan.ts';

const { event, purchase } = planner();
const bothKinds = [event, purchase] as ((object: Objects) => unknown)[];

describe('the time of events and purchases', () => {
  test.each([
    ['ISO 8601', '2026-01-30T08:00:00Z', '2026-01-30T08:00:00.000Z'],
    ['ISO 8601 with milliseconds', '2026-01-30T08:00:00.123Z', '2026-01-30T08:00:00.123Z'],
    ['ISO 8601 with an offset', '2026-01-30T08:00:00+02:00', '2026-01-30T06:00:00.000Z'],
    ["yyyy-MM-dd'T'HH:mm:ss:SSSZ", '2026-01-30T08:00:00:123+0200', '2026-01-30T06:00:00.123Z'],
    ['the same in UTC', '2026-01-30T08:00:00:123Z', '2026-01-30T08:00:00.123Z'],
    ['an offset of one digit', '2026-01-30T08:00:00+1:00', '2026-01-30T07:00:00.000Z'],
    ['a space for the T', '2026-01-30 08:00:00', '2026-01-30T08:00:00.000Z'],
    ['no zone: UTC', '2026-01-30T08:00:00', '2026-01-30T08:00:00.000Z'],
    ['a date: midnight UTC', '2026-01-30', '2026-01-30T00:00:00.000Z'],
    ['long ago', '1970-01-01T00:00:00Z', '1970-01-01T00:00:00.000Z'],
  ])('%s', (_format, time, stored) => {
    for (const one of bothKinds) expect(one({ time })).toMatchObject({ time: stored });
  });

  test('a time in the future is stored as now', () => {
    for (const time of ['2026-01-31T12:00:00.001Z', '2099-12-31T00:00:00Z', '2026-01-31T23:00:00+01:00']) {
      for (const one of bothKinds) expect(one({ time })).toMatchObject({ time: new Date(now).toISOString() });
    }
  });

  test('is required', () => {
    for (const one of bothKinds) {
      expect(one({ time: undefined as never })).toBe("'time' is required");
    }
  });

  test.each<Json>(['soon', '', '2026-02-30T00:00:00Z', '2026-01-30T25:00:00Z', 1769760000, null, {}])(
    '%j is rejected',
    (time) => {
      for (const one of bothKinds) {
        expect(one({ time })).toBe(
          "'time' is not valid: it must be a time in ISO 8601 or as yyyy-MM-dd'T'HH:mm:ss:SSSZ",
        );
      }
    },
  );
});

describe('an event', () => {
  test('needs a name', () => {
    expect(event({ name: undefined as never })).toBe("'name' is required");
  });

  test.each<Json>(['', 5, null, ['seen']])('cannot be called %j', (name) => {
    expect(event({ name })).toBe("'name' is not valid: it must be a string of 1 to 255 characters");
  });

  test('may have a name of 255 characters, an app and properties', () => {
    const name = 'é'.repeat(255);
    expect(event({ name, app_id: 'app-1', properties: { plan: 'pro' } })).toMatchObject({
      kind: 'events',
      name,
      app_id: 'app-1',
      properties: { plan: 'pro' },
    });
  });

  test('ignores members that it does not know', () => {
    expect(Object.keys(event({ colour: 'blue', email: 'ada@example.com' })).sort()).toEqual(
      ['create', 'id', 'identifier', 'index', 'kind', 'name', 'time'].sort(),
    );
  });
});

describe('a purchase', () => {
  test.each(['product_id', 'currency', 'price', 'time'])('needs %s', (member) => {
    expect(purchase({ [member]: undefined as never })).toBe(`'${member}' is required`);
  });

  test.each<[Json, string]>([
    ['EUR', 'EUR'],
    ['usd', 'USD'],
    ['JPY', 'JPY'],
  ])('with the currency %j is stored in %s', (currency, stored) => {
    expect(purchase({ currency })).toMatchObject({ currency: stored });
  });

  test.each<Json>(['EURO', 'ZZZ', '', '€', 978, null])('has no currency %j', (currency) => {
    expect(purchase({ currency })).toBe("'currency' is not valid: it must be an ISO 4217 currency code");
  });

  test.each([0, 12.5, -3.99, 1e9])('may have the price %d; a negative one is a refund', (price) => {
    expect(purchase({ price })).toMatchObject({ price });
  });

  test.each<[string, number]>([
    ['12.50', 12.5],
    ['-3', -3],
    [' 1e2 ', 100],
    ['+0.5', 0.5],
  ])('may have its price as the numeric string %j', (price, stored) => {
    expect(purchase({ price })).toMatchObject({ price: stored });
  });

  test.each<Json>([
    ...['', ' ', '12,50', '1,000.00', '12.50 EUR', '0x10', 'Infinity', '1e999', '.5', '9007199254740993'],
    ...[null, [], true],
  ])('has no price %j', (price) => {
    expect(purchase({ price })).toBe("'price' is not valid: it must be a number");
  });

  test.each([1, 2, 100])('may have the quantity %d', (quantity) => {
    expect(purchase({ quantity })).toMatchObject({ quantity });
  });

  test('without a quantity counts as one piece', () => {
    expect(purchase({})).toMatchObject({ quantity: 1 });
  });

  test.each<[string, number]>([
    ['1', 1],
    ['100', 100],
    ['2.0', 2],
  ])('may have its quantity as the numeric string %j', (quantity, stored) => {
    expect(purchase({ quantity })).toMatchObject({ quantity: stored });
  });

  test.each<Json>([0, 101, -1, 1.5, '0', '101', '1.5', '', 'two', {}])('has no quantity %j', (quantity) => {
    expect(purchase({ quantity })).toBe("'quantity' is not valid");
  });

  test('may have an integer as product_id, stored as text', () => {
    expect(purchase({ product_id: 1042 })).toMatchObject({ product_id: '1042' });
  });

  test.each<Json>(['', 1.5, true, null])('has no product_id %j', (product_id) => {
    expect(purchase({ product_id })).toBe(
      "'product_id' is not valid: it must be a string of 1 to 255 characters",
    );
  });

  test('is stored with product, currency, price, quantity, app and properties', () => {
    expect(purchase({ quantity: 2, app_id: 'app-1', properties: { colour: 'red' } })).toMatchObject({
      kind: 'purchases',
      identifier: { external_id: 'ada' },
      product_id: 'book',
      currency: 'EUR',
      price: 1,
      quantity: 2,
      app_id: 'app-1',
      properties: { colour: 'red' },
    });
  });
});

describe('properties of events and purchases', () => {
  test.each<[string, Objects, Objects]>([
    ['numbers', { whole: 1, part: 1.5 }, { whole: 1, part: 1.5 }],
    ['booleans', { yes: true, no: false }, { yes: true, no: false }],
    ['dates in ISO 8601', { when: '2026-01-30T08:00:00Z' }, { when: '2026-01-30T08:00:00Z' }],
    [
      "dates as yyyy-MM-dd'T'HH:mm:ss:SSSZ",
      { when: '2026-01-30T08:00:00:000Z' },
      { when: '2026-01-30T08:00:00:000Z' },
    ],
    ['strings of 255 characters', { text: 'x'.repeat(255) }, { text: 'x'.repeat(255) }],
    ['the empty string', { text: '' }, { text: '' }],
    ['arrays', { list: ['a', 1, true] }, { list: ['a', 1, true] }],
    ['objects, ingested as strings', { nested: { a: [1] } }, { nested: '{"a":[1]}' }],
    ['names of 255 characters', { ['n'.repeat(255)]: 1 }, { ['n'.repeat(255)]: 1 }],
  ])('may be %s', (_kind, properties, stored) => {
    for (const one of bothKinds) expect(one({ properties })).toMatchObject({ properties: stored });
  });

  test.each<[string, Objects, RegExp]>([
    ['an empty name', { '': 1 }, /a name must not be empty/],
    ['a name with a leading $', { $price: 1 }, /a name must not start with '\$'/],
    ['a date in an array', { list: ['2026-01-30T08:00:00Z'] }, /an array must not contain datetimes/],
    [
      'more than 50 KB with an array',
      { list: [1], ...Object.fromEntries(Array.from({ length: 220 }, (_, i) => [`p${i}`, 'x'.repeat(250)])) },
      /with arrays or objects it must be at most 51200 bytes of JSON/,
    ],
    [
      'more than 50 KB with an object',
      { nested: { text: 'x'.repeat(51_200) } },
      /at most 51200 bytes of JSON/,
    ],
    ['the reserved name time', { time: 1 }, /^Invalid 'properties' field$/],
    ['the reserved name event_name', { event_name: 'x' }, /^Invalid 'properties' field$/],
  ])('may not have %s', (_what, properties, text) => {
    for (const one of bothKinds) expect(one({ properties })).toMatch(text);
  });

  test.each(['product_id', 'quantity', 'price', 'currency'])(
    "of a purchase may not be called %s; an event's may",
    (name) => {
      expect(purchase({ properties: { [name]: 1 } })).toBe("Invalid 'properties' field");
      expect(event({ properties: { [name]: 1 } })).toMatchObject({ properties: { [name]: 1 } });
    },
  );

  test('may exceed 50 KB when all of them are plain', () => {
    const plain = Object.fromEntries(Array.from({ length: 250 }, (_, i) => [`p${i}`, 'x'.repeat(250)]));
    for (const one of bothKinds) expect(one({ properties: plain })).toMatchObject({ properties: plain });
  });

  test.each<Json>(['text', 5, true, [[{ a: 1 }]]])('cannot be %j', (properties) => {
    for (const one of bothKinds) {
      expect(one({ properties })).toBe("'properties' is not valid: it must be an object");
    }
  });
});
