import { describe, expect, test } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import { now, type Objects, planner, time } from './plan.ts';

const { plan } = planner();

const attributes = { external_id: 'ada', first_name: 'Ada' };
const event = { external_id: 'ada', name: 'seen', time };
const purchase = { external_id: 'ada', product_id: 'book', currency: 'EUR', price: 12.5, time };
/** An event without an identifier. */
const stray = { name: 'seen', time };
const required = "'external_id', 'service_id', 'user_alias', 'email' or 'phone' is required";
const nothingValid = "Valid data must be provided in the 'attributes', 'events', or 'purchases' fields.";

describe('the three shapes of the answer', () => {
  test('success: 201 with a count for each array that was sent', () => {
    const { status, body } = plan({
      attributes: [attributes],
      events: [event, event],
      purchases: [purchase],
    });
    expect({ status, body }).toEqual({
      status: 201,
      body: { attributes_processed: 1, events_processed: 2, purchases_processed: 1, message: 'success' },
    });
  });

  test.each([
    ['attributes', attributes],
    ['events', event],
    ['purchases', purchase],
  ])('success: a request with only %s returns only their count', (kind, object) => {
    expect(plan({ [kind]: [object] }).body).toEqual({ [`${kind}_processed`]: 1, message: 'success' });
  });

  test('success with errors: 201, and each rejected object is named by rule, array and position', () => {
    const { status, body, objects, rejected } = plan({
      attributes: [attributes, { first_name: 'nobody' }],
      events: [event, stray, event],
      purchases: [{ ...purchase, quantity: 0 }, purchase],
    });
    expect({ status, body }).toEqual({
      status: 201,
      body: {
        attributes_processed: 1,
        events_processed: 2,
        purchases_processed: 1,
        message: 'success',
        errors: [
          { type: required, input_array: 'attributes', index: 1 },
          { type: required, input_array: 'events', index: 1 },
          { type: "'quantity' is not valid", input_array: 'purchases', index: 0 },
        ],
      },
    });
    expect(objects.map(({ kind, index }) => [kind, index])).toEqual([
      ['attributes', 0],
      ['events', 0],
      ['events', 2],
      ['purchases', 1],
    ]);
    expect(rejected).toHaveLength(3);
  });

  test('counts accepted objects: two objects of one external id count twice', () => {
    const { body } = plan({
      attributes: [attributes, { ...attributes, last_name: 'Lovelace' }, { ...attributes, email: 'none' }],
    });
    expect(body).toMatchObject({
      attributes_processed: 2,
      errors: [{ input_array: 'attributes', index: 2 }],
    });
  });

  test('an array without a valid object has no count', () => {
    expect(plan({ attributes: [attributes], events: [stray] }).body).not.toHaveProperty('events_processed');
  });

  test('fatal: a request without a valid object is 400, with the errors of the objects', () => {
    const { status, body, objects } = plan({ events: [stray] });
    expect({ status, body, objects }).toEqual({
      status: 400,
      body: { message: nothingValid, errors: [{ type: required, input_array: 'events', index: 0 }] },
      objects: [],
    });
  });

  test.each([
    [{}],
    [{ attributes: [], events: [], purchases: [] }],
    [{ attributes: null }],
    [{ partner: 'cdp' }],
  ])('fatal: %j is empty and is 400, with the fatal message in errors', (body) => {
    expect(plan(body as Objects)).toMatchObject({
      status: 400,
      body: { message: nothingValid, errors: [{ type: nothingValid }] },
    });
  });
});

describe('caps', () => {
  test('75 objects in each array are accepted', () => {
    const { status, body } = plan({
      attributes: Array(75).fill(attributes),
      events: Array(75).fill(event),
      purchases: Array(75).fill(purchase),
    });
    expect({ status, body }).toEqual({
      status: 201,
      body: { attributes_processed: 75, events_processed: 75, purchases_processed: 75, message: 'success' },
    });
  });

  test.each([
    ['attributes', attributes],
    ['events', event],
    ['purchases', purchase],
  ])('76 %s are 400, and the whole request is rejected', (kind, object) => {
    expect(plan({ events: [event], [kind]: Array(76).fill(object) })).toMatchObject({
      status: 400,
      body: { message: 'Max Input Length Exceeded', errors: [{ type: 'Max Input Length Exceeded' }] },
      objects: [],
    });
  });

  test('invalid objects count towards the limit', () => {
    expect(plan({ events: [...Array(75).fill(stray), event] }).status).toBe(400);
  });
});

describe('order and ids', () => {
  test('objects take effect in order: attributes, then events, then purchases', () => {
    const { objects } = plan({
      purchases: [purchase],
      events: [
        { ...event, name: 'first' },
        { ...event, name: 'second' },
      ],
      attributes: [attributes],
    });
    expect(objects.map((object) => ('name' in object ? object.name : object.kind))).toEqual([
      'attributes',
      'first',
      'second',
      'purchases',
    ]);
  });

  test('every object has an id of its own; two equal events are two events', () => {
    const { objects, body } = plan({ events: [event, event, event] });
    expect(body.events_processed).toBe(3);
    expect(new Set(objects.map(({ id }) => id)).size).toBe(3);
    for (const { id } of objects) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7/);
  });
});

describe('tolerated input of clients in the field, where it has one clear meaning', () => {
  test('unknown members of the request are ignored', () => {
    const body = {
      events: [event],
      partner: 'cdp',
      api_key: 'secret',
      app_group_id: 'x',
      time: 5,
      nested: { a: [] },
    };
    expect(plan(body).body).toEqual({ events_processed: 1, message: 'success' });
  });

  test('one object is accepted in place of an array of one', () => {
    const { body } = plan({ attributes, events: event, purchases: purchase });
    expect(body).toEqual({
      attributes_processed: 1,
      events_processed: 1,
      purchases_processed: 1,
      message: 'success',
    });
  });

  test('null and empty arrays are ignored', () => {
    expect(plan({ attributes: null, events: [event], purchases: [] }).body).toEqual({
      events_processed: 1,
      message: 'success',
    });
  });

  test('an integer external id is stored as text', () => {
    const { objects } = plan({ attributes: [{ external_id: 1, n: 1 }] });
    expect(objects).toMatchObject([{ identifier: { external_id: '1' } }]);
  });

  test('null and empty optional members are ignored', () => {
    const none = { user_alias: null, service_id: '', email: null, phone: '', app_id: null, properties: null };
    const { objects, body } = plan({
      events: [{ ...event, ...none, _update_existing_only: null }],
      purchases: [{ ...purchase, ...none, app_id: '', quantity: null }],
    });
    expect(body.errors).toBeUndefined();
    for (const object of objects) {
      expect(object).toMatchObject({ identifier: { external_id: 'ada' } });
      expect(object).not.toHaveProperty('create', false);
      expect(object).not.toHaveProperty('app_id');
      expect(object).not.toHaveProperty('properties');
    }
    expect(objects[1]).toMatchObject({ quantity: 1 });
  });
});

describe('an invalid object, or an object that cannot be stored, fails alone', () => {
  test.each<[string, Json, string]>([
    ['a number', 5, "each element of 'events' must be an object"],
    ['null', null, "each element of 'events' must be an object"],
    ['an array', [event], "each element of 'events' must be an object"],
    [
      'a character that Postgres cannot hold',
      { ...event, name: 'a\u0000' },
      "'name' is not valid: it must not contain the character \\u0000",
    ],
    [
      'half of a surrogate pair',
      { ...event, name: '\ud800' },
      "'name' is not valid: it must not contain half of a surrogate pair",
    ],
    [
      'an integer that lost digits',
      { ...event, properties: { n: 2 ** 53 } },
      "'properties.n' is not valid: integers beyond 9007199254740991 lose digits; send it as a string",
    ],
  ])('%s', (_what, object, type) => {
    const { status, body } = plan({ events: [event, object, event] });
    expect({ status, body }).toEqual({
      status: 201,
      body: { events_processed: 2, message: 'success', errors: [{ type, input_array: 'events', index: 1 }] },
    });
  });

  test('a text or a number in place of an array counts as one invalid object', () => {
    for (const value of ['text', 5, true]) {
      expect(plan({ attributes: [attributes], events: value }).body.errors).toEqual([
        { type: "each element of 'events' must be an object", input_array: 'events', index: 0 },
      ]);
    }
  });
});

describe('blocked external ids', () => {
  test('are rejected in every array, each as one object', () => {
    const guarded = planner('service_id', { isBlocked: (id) => id === 'dummy' });
    const dummy = (object: Objects) => ({ ...object, external_id: 'dummy' });
    const { body } = guarded.plan({
      attributes: [dummy(attributes), attributes],
      events: [dummy(event)],
      purchases: [dummy(purchase)],
    });
    expect(body).toEqual({
      attributes_processed: 1,
      message: 'success',
      errors: ['attributes', 'events', 'purchases'].map((input_array) => ({
        type: 'provided external_id is blacklisted and disallowed',
        input_array,
        index: 0,
      })),
    });
  });
});

describe('the wire name of the service id is configured', () => {
  const branded = planner('braze_id');
  const braze_id = '0123456789abcdef01234567';

  test('it identifies a user under that name', () => {
    expect(branded.event({ external_id: null, braze_id })).toMatchObject({
      identifier: { service_id: braze_id },
    });
  });

  test('errors mention that name', () => {
    expect(branded.event({ external_id: null })).toBe(
      "'external_id', 'braze_id', 'user_alias', 'email' or 'phone' is required",
    );
    expect(branded.event({ external_id: null, braze_id: 'x' })).toMatch(/^'braze_id' is not valid/);
  });

  test('it is not stored as a custom attribute of that name', () => {
    expect(branded.attributes({ braze_id, n: 1 })).toMatchObject({ set: { n: 1 } });
  });

  test('the name that another installation uses is an attribute', () => {
    expect(branded.attributes({ external_id: 'ada', service_id: 'x' })).toMatchObject({
      set: { service_id: 'x' },
    });
  });
});

test('planning uses only the time that the caller passes', () => {
  const { objects } = plan({ events: [{ ...event, time: '2099-01-01T00:00:00Z' }] });
  expect(objects).toMatchObject([{ time: new Date(now).toISOString() }]);
});
