import fc from 'fast-check';
import type { Json } from '../../src/profile/json.ts';
import type { Wire } from './card.ts';

/**
 * A few values of each kind, so that objects share users: by email address, phone number, or several
 * identifiers.
 */
const emails = ['ann@example.com', 'bob@example.com'];
const phones = ['+442071838750', '+14155552671'];
/** Ten digits are a number of the United States; four digits are stored and match no user. */
const otherPhones = ['415 555 2671', '1234'];
export const serviceIds = {
  withExternalId: '0198a1b2c3d4000000000001',
  withoutExternalId: '0198a1b2c3d4000000000002',
  ofNobody: '0198a1b2c3d4000000000003',
};
export const groups = { email: 'email', sms: 'sms', archived: 'archived', unknown: 'unknown' };

/** Value that the test's store rejects: a trigger raises an exception for it. */
export const POISON = 'poison';

const times = ['2026-01-02T03:04:05Z', '2026-02-03T04:05:06.789+02:00', '2025-12-31', '2026-01-31 23:59:59'];
const states = ['subscribed', 'unsubscribed', 'opted_in'];

const updateOnly = fc.constantFrom<Wire>(
  {},
  {},
  { _update_existing_only: true },
  { _update_existing_only: false },
);

const primary = fc.oneof(
  { weight: 4, arbitrary: fc.record({ external_id: fc.constantFrom('u1', 'u2', 'u4') }) },
  {
    weight: 2,
    arbitrary: fc
      .constantFrom('a1', 'a2')
      .map((alias_name) => ({ user_alias: { alias_name, alias_label: 'l' } })),
  },
  { weight: 1, arbitrary: fc.record({ service_id: fc.constantFrom(...Object.values(serviceIds)) }) },
);
const address = fc.oneof(
  { weight: 1, arbitrary: fc.record({ email: fc.constantFrom(...emails) }) },
  { weight: 1, arbitrary: fc.record({ phone: fc.constantFrom(...phones) }) },
  {
    weight: 1,
    arbitrary: fc.record({ email: fc.constantFrom(...emails), phone: fc.constantFrom(...phones) }),
  },
);
/** An address next to a primary identifier is data: it moves to that user. */
const movingAddress = fc
  .tuple(primary, address)
  .map(([identifier, data]): Wire => ({ ...data, ...identifier }));
const identified: fc.Arbitrary<Wire> = fc
  .tuple(
    fc.oneof(
      { weight: 2, arbitrary: primary },
      { weight: 2, arbitrary: address },
      { weight: 1, arbitrary: movingAddress },
    ),
    updateOnly,
  )
  .map(([identifier, switches]) => ({ ...identifier, ...switches }));

const scalar = fc.constantFrom<Json>('x', 'y', 1, 2, true, false);
const flat: fc.Arbitrary<Json> = fc.dictionary(fc.constantFrom('k', 'l', '__proto__'), scalar, {
  maxKeys: 2,
});
const nested: fc.Arbitrary<Json> = fc.dictionary(
  fc.constantFrom('k', 'l', 'm'),
  fc.oneof(scalar, fc.constant(null), flat),
  { maxKeys: 3 },
);
const item = fc.record({ id: fc.constantFrom(1, 2), v: scalar });
const items = fc.array(item, { maxLength: 2 });
const which = { $identifier_key: fc.constant('id'), $identifier_value: fc.constantFrom(1, 2) };

/** Integers beyond this lose digits. */
const MAX_EXACT = Number.MAX_SAFE_INTEGER;
const numbers: fc.Arbitrary<Json> = fc.oneof(
  { weight: 3, arbitrary: fc.integer({ min: -3, max: 9 }).map((inc) => ({ inc })) },
  { weight: 1, arbitrary: fc.oneof(scalar, fc.constant(null)) },
  { weight: 1, arbitrary: fc.constantFrom(MAX_EXACT, -MAX_EXACT, MAX_EXACT - 2).map((inc) => ({ inc })) },
);
const lists: fc.Arbitrary<Json> = fc.oneof(
  fc.array(scalar, { maxLength: 3 }),
  fc.constantFrom(null, 'gold'),
  fc
    .record(
      { add: fc.array(scalar, { maxLength: 3 }), remove: fc.array(scalar, { maxLength: 2 }) },
      { requiredKeys: ['add'] },
    )
    .map((value) => value as Json),
  fc.record({ remove: fc.array(scalar, { minLength: 1, maxLength: 2 }) }).map((value) => value as Json),
);
const objects: fc.Arbitrary<Json> = fc.oneof(
  { weight: 6, arbitrary: nested },
  { weight: 1, arbitrary: fc.constantFrom<Json>(null, 'x', { 'bad name': 1 }) },
);
const listsOfObjects: fc.Arbitrary<Json> = fc.oneof(
  items.map((value) => value as Json),
  fc.constantFrom<Json>(null, 'gold'),
  items.map(($add) => ({ $add }) as Json),
  fc.record(which).map((remove) => ({ $remove: [remove] }) as Json),
  fc.record({ ...which, $new_object: flat }).map((update) => ({ $update: [update] }) as Json),
  fc
    .record({
      ...which,
      $new_object: fc.record({ id: fc.constant(1), v: fc.oneof(scalar, fc.constant(null)) }),
    })
    .map((update) => ({ $add: [{ id: 1 }], $update: [update] }) as Json),
);
const custom = fc
  .array(
    fc.oneof(
      fc.tuple(fc.constantFrom('points', '__proto__', 'constructor'), numbers),
      fc.tuple(fc.constant('list'), lists),
      fc.tuple(fc.constant('object'), objects),
      fc.tuple(fc.constant('objects'), listsOfObjects),
    ),
    { maxLength: 3 },
  )
  .map((entries): Wire => Object.fromEntries(entries));

const token = fc
  .constantFrom('t1', 't2', 't3')
  .map((name): Json => ({ app_id: 'app', token: name, device_id: `device-${name}` }));
const subscription = fc.record({
  subscription_group_id: fc.constantFrom(...Object.values(groups)),
  subscription_state: fc.constantFrom('subscribed', 'unsubscribed'),
});
const standard = fc.record({
  email: fc.constantFrom(...emails, null),
  phone: fc.constantFrom(...phones, ...otherPhones, null),
  first_name: fc.constantFrom('Ann', 'Bob', null),
  home_city: fc.constantFrom('Lima', null),
  country: fc.constantFrom('DE', 'Australia', 'Atlantis', null),
  language: fc.constantFrom('en', 'nonsense', null),
  current_location: fc.constantFrom({ longitude: 1.5, latitude: -2.5 }, null),
  date_of_last_session: fc.constantFrom(...times, null),
  email_open_tracking_disabled: fc.constantFrom(true, false, null),
  facebook: fc.constantFrom({ id: '1', likes: ['a'] }, null),
  push_subscribe: fc.constantFrom(...states),
  email_subscribe: fc.constantFrom(...states, 'nonsense'),
  subscription_groups: fc.array(subscription, { minLength: 1, maxLength: 2 }),
  push_tokens: fc.array(token, { minLength: 1, maxLength: 2 }),
});
/** Most objects carry a few standard attributes, as in the field. */
const fewStandard = fc.tuple(standard, fc.array(fc.nat(), { maxLength: 3 })).map(([all, picks]): Wire => {
  const entries = Object.entries(all) as [string, Json][];
  return Object.fromEntries(picks.map((pick) => entries[pick % entries.length]!));
});

const attributes = fc.tuple(identified, fewStandard, custom, fc.boolean()).map(
  ([identifier, columns, values, merge]): Wire => ({
    ...columns,
    ...values,
    ...identifier,
    ...(merge && { _merge_objects: true }),
  }),
);
/** Objects that often change addresses, and the states that move with them. */
const subscriber = fc
  .tuple(
    identified,
    fc.record(
      {
        phone: fc.constantFrom(...phones, ...otherPhones, null),
        email: fc.constantFrom(...emails, null),
        email_subscribe: fc.constantFrom(...states),
        subscription_groups: fc.array(subscription, { minLength: 1, maxLength: 2 }),
      },
      { requiredKeys: [] },
    ),
  )
  .map(([identifier, change]): Wire => ({ ...change, ...identifier }));
const tokenImport = fc.tuple(fewStandard, custom, fc.array(token, { minLength: 1, maxLength: 2 })).map(
  ([columns, values, tokens]): Wire => ({
    ...columns,
    ...values,
    push_token_import: true,
    // If one object creates two profiles with one address, the model does not define which of them the
    // address selects.
    push_tokens: columns.email || columns.phone ? tokens.slice(0, 1) : tokens,
  }),
);
const poisonedAttributes = attributes.map((object): Wire => ({ ...object, [POISON]: true }));

const time = fc.constantFrom(...times);
const properties = fc.constantFrom<Wire>({}, { properties: { a: 1, b: ['x'] } });
const event = fc
  .tuple(identified, fc.constantFrom('opened', 'opened', 'closed'), time, properties)
  .map(([identifier, name, when, more]): Wire => ({ ...identifier, name, time: when, ...more }));
const poisonedEvent = event.map((object): Wire => ({ ...object, name: POISON }));
const nameless = event.map(({ name: _, ...object }): Wire => object);
const purchase = fc
  .tuple(
    identified,
    fc.constantFrom('tea', 'milk'),
    fc.constantFrom('EUR', 'usd'),
    fc.integer({ min: -4, max: 40 }),
    time,
    fc.constantFrom(undefined, 1, 3, 101),
  )
  .map(
    ([identifier, product_id, currency, quarters, when, quantity]): Wire => ({
      ...identifier,
      product_id,
      currency,
      price: quarters / 4,
      time: when,
      ...(quantity && { quantity }),
    }),
  );

export interface TrackRequest {
  attributes: Wire[];
  events: Wire[];
  purchases: Wire[];
  /** Changes by other endpoints after it: a state of a group, or of an email address. */
  settings: Wire[];
}

const setting = fc.oneof(
  {
    weight: 3,
    arbitrary: fc
      .tuple(
        subscription,
        fc.oneof(
          fc.record({ external_ids: fc.constantFrom('u1', 'u2', 'u4') }),
          fc.record({ emails: fc.constantFrom(...emails) }),
          fc.record({ phones: fc.constantFrom(...phones) }),
        ),
      )
      .map(([state, who]): Wire => ({ ...state, ...who })),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      email: fc.constantFrom(...emails),
      subscription_state: fc.constantFrom(...states),
    }),
  },
);

export const trackRequest: fc.Arbitrary<TrackRequest> = fc.record({
  attributes: fc.array(
    fc.oneof(
      { weight: 30, arbitrary: attributes },
      { weight: 15, arbitrary: subscriber },
      { weight: 2, arbitrary: tokenImport },
      { weight: 1, arbitrary: poisonedAttributes },
    ),
    { maxLength: 5, size: 'max' },
  ),
  events: fc.array(
    fc.oneof(
      { weight: 30, arbitrary: event },
      { weight: 1, arbitrary: poisonedEvent },
      { weight: 1, arbitrary: nameless },
    ),
    { maxLength: 3, size: 'max' },
  ),
  purchases: fc.array(purchase, { maxLength: 2 }),
  settings: fc.array(setting, { maxLength: 3 }),
});
