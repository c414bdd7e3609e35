import { describe, expect, test } from 'vitest';
import { usersTrack } from '../../src/operations/users.track.ts';
import { callerOf } from './caller.ts';
import { now, planner, time } from './plan.ts';

const { plan } = planner();
const x = 'x'.repeat(255);
const event = { external_id: 'ada', name: 'seen', time };
const purchase = { external_id: 'ada', product_id: 'book', currency: 'EUR', price: 1, time };
const longNames = {
  attributes: [
    { external_id: 'ada', n: 1 },
    { external_id: 'ada', [`${x}1`]: 1 },
  ],
  events: [event, { ...event, name: `${x}1`, properties: { url: `${x}1` } }],
  purchases: [purchase, { ...purchase, product_id: `${x}1` }, { ...purchase, quantity: 0 }],
};

describe('names and strings of more than 255 characters are cut, and the object is applied', () => {
  test('each is named by text, array and position, along with the errors of rejected objects', () => {
    const { status, body, objects, rejected } = plan(longNames);
    expect(rejected).toHaveLength(1);
    expect({ status, body }).toEqual({
      status: 201,
      body: {
        attributes_processed: 2,
        events_processed: 2,
        purchases_processed: 2,
        message: 'success',
        errors: [{ type: "'quantity' is not valid", input_array: 'purchases', index: 2 }],
        warnings: [
          {
            type: `'${'x'.repeat(64)}…' was cut to 255 characters in its name`,
            input_array: 'attributes',
            index: 1,
          },
          { type: "'properties.url' was cut to 255 characters", input_array: 'events', index: 1 },
          { type: "'name' was cut to 255 characters", input_array: 'events', index: 1 },
          { type: "'product_id' was cut to 255 characters", input_array: 'purchases', index: 1 },
        ],
      },
    });
    expect(objects).toMatchObject([
      { set: { n: 1 } },
      { set: { [x]: 1 } },
      { name: 'seen' },
      { name: x, properties: { url: x } },
      { product_id: 'book' },
      { product_id: x },
    ]);
  });

  test('the name of an event is not cut within an emoji', () => {
    const { objects } = plan({ events: [{ ...event, name: `${'👍'.repeat(255)}y` }] });
    expect(objects).toMatchObject([{ name: '👍'.repeat(255) }]);
    expect(plan({ events: [{ ...event, name: '👍'.repeat(255) }] }).body).not.toHaveProperty('warnings');
  });

  test('with LONG_STRINGS=refuse each of them is rejected alone', () => {
    const strict = usersTrack('service_id', { longStrings: 'refuse' });
    const caller = callerOf('018f0000-0000-7000-8000-000000000000', { now });
    const { reply } = strict.plan(caller, longNames);
    const rule = 'is not valid: it must be a string of 1 to 255 characters';
    expect(reply.body).toEqual({
      attributes_processed: 1,
      events_processed: 1,
      purchases_processed: 1,
      message: 'success',
      errors: [
        {
          type: `'${'x'.repeat(64)}…' is not valid: the name of an attribute must be at most 255 characters`,
          input_array: 'attributes',
          index: 1,
        },
        { type: `'name' ${rule}`, input_array: 'events', index: 1 },
        { type: `'product_id' ${rule}`, input_array: 'purchases', index: 1 },
        { type: "'quantity' is not valid", input_array: 'purchases', index: 2 },
      ],
    });
  });
});

describe('identifiers are never cut: two users do not become one', () => {
  test.each([
    [{ external_id: 'x'.repeat(988) }, "'external_id' must be fewer than 988 bytes"],
    [
      { user_alias: { alias_name: 'x'.repeat(237), alias_label: 'l' } },
      "'user_alias.alias_name' is not valid: it must be at most 236 bytes",
    ],
  ])('%j', (identifier, type) => {
    const { body, objects } = plan({ attributes: [{ ...identifier, n: 1 }] });
    expect(objects).toEqual([]);
    expect(body.errors).toEqual([{ type, input_array: 'attributes', index: 0 }]);
  });

  test('an external id of 987 bytes is kept whole', () => {
    const external_id = 'x'.repeat(987);
    const { body, objects } = plan({ attributes: [{ external_id, n: 1 }] });
    expect(objects).toMatchObject([{ identifier: { external_id } }]);
    expect(body).not.toHaveProperty('warnings');
  });
});

describe('an invalid standard attribute is dropped alone', () => {
  test('it is omitted and named, and the object is applied', () => {
    const unreadable = {
      ...{
        dob: 'soon',
        gender: 'x',
        first_name: 5,
        last_name: [],
        home_city: {},
        image_url: 1,
        phone: 'none',
      },
      ...{ current_location: { latitude: 1 }, time_zone: 'Mars', language: 'xx', date_of_first_session: 'x' },
    };
    for (const [name, value] of Object.entries(unreadable)) {
      const { status, body, objects } = plan({ attributes: [{ external_id: 'ada', n: 1, [name]: value }] });
      expect({ status, body }).toEqual({
        status: 201,
        body: {
          attributes_processed: 1,
          message: 'success',
          warnings: [
            {
              type: expect.stringMatching(`^'${name}' is not valid: .*; it was omitted$`),
              input_array: 'attributes',
              index: 0,
            },
          ],
        },
      });
      expect(objects[0]).toMatchObject({ set: { n: 1 } });
      expect(objects[0]).not.toHaveProperty('standard');
    }
  });

  test('an invalid phone of any type is dropped, or rejects the object if it is the identifier', () => {
    for (const phone of [true, 1.5, [], {}, 'none']) {
      expect(plan({ attributes: [{ external_id: 'ada', phone, n: 1 }] })).toMatchObject({
        status: 201,
        body: { warnings: [{ index: 0 }] },
      });
      expect(plan({ attributes: [{ phone, n: 1 }] })).toMatchObject({ status: 400 });
    }
  });

  test('an import of push tokens is applied without it', () => {
    const tokens = { push_token_import: true, push_tokens: [{ app_id: 'a', token: 't' }], dob: 'soon' };
    expect(plan({ attributes: [tokens] })).toMatchObject({ status: 201, body: { warnings: [{ index: 0 }] } });
  });
});

test('objects without a warning are answered without one', () => {
  const { body } = plan({ attributes: [{ external_id: 'ada', first_name: 'Ada' }], events: [event] });
  expect(Object.keys(body)).toEqual(['attributes_processed', 'events_processed', 'message']);
});

test('the number of warnings per object is bounded', () => {
  const many = Object.fromEntries(
    Array.from({ length: 500 }, (_, i): [string, string] => [`a${i}`, `${x}1`]),
  );
  const { body } = plan({ attributes: Array(75).fill({ external_id: 'ada', ...many }) });
  expect(body.warnings).toHaveLength(75 * 11);
});
