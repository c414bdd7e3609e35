import fc from 'fast-check';
import type { Json } from '../../src/profile/json.ts';

/** Returns an incompressible text of the given bytes; an index entry has room for 2,704 uncompressed bytes. */
export function noise(bytes: number, seed: number): string {
  let text = '';
  let state = seed;
  // A linear congruential generator; the letters are CJK ideographs, of three bytes each.
  for (let left = bytes; left >= 3; left -= 3) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    text += String.fromCodePoint(0x4e00 + ((state >>> 8) % 0x5000));
  }
  return text;
}

const emoji = (count: number, seed: number): string =>
  Array.from({ length: count }, (_, index) =>
    String.fromCodePoint(0x1f300 + ((index * 37 + seed * 101) % 700)),
  ).join('');

/** Texts with characters that are special in JSON, array literals, LIKE or Unicode, and ordinary ones. */
const ODD_TEXTS = [
  '{"a","b"}',
  '{NULL}',
  'NULL',
  '\\',
  '\\\\x00',
  '"',
  "'",
  '%_%',
  ' ',
  '\t\n',
  '\u0001',
  '\u007f',
  '\ufffe',
  '\uffff',
  '\u{10ffff}',
  '\ufeffx',
  '\u202e',
  'e\u0301\u0301\u0301',
  'İ',
  'ß',
  '__proto__',
  'constructor',
  '-0',
  'Infinity',
  'infinity',
  '1e400000',
  'epoch',
  'now',
];

const LONG_TEXTS = [emoji(255, 1), emoji(255, 2), noise(765, 3), noise(765, 4), emoji(400, 5)];

const EXTERNAL_IDS = [noise(987, 1), noise(987, 2), noise(985, 3), ...ODD_TEXTS.slice(0, 8), '0', '1'];
const ALIASES = [
  { alias_label: noise(236, 5), alias_name: noise(236, 6) },
  { alias_label: noise(236, 5), alias_name: noise(236, 7) },
  { alias_label: '{"', alias_name: '\\"}' },
  { alias_label: '1:', alias_name: ':1' },
];
const LABEL = 'a'.repeat(63);
const EMAILS = [
  `${'x'.repeat(64)}@${LABEL}.${LABEL}.${LABEL}.${'a'.repeat(57)}.com`,
  `${noise(63, 8)}@${LABEL}.com`,
  'a@x.com',
  'b@x.com',
];
const PHONES = ['+442071838750', '+442071838751', '442071838752', `+${'9'.repeat(250)}`];

const TIMES = [
  '0001-01-01T00:00:00Z',
  '0001-01-01T00:00:00-00:01',
  '0001-12-31',
  '1582-10-10T00:00:00Z',
  '1969-12-31T23:59:59.999Z',
  '2000-02-29T24:00:00Z',
  '2016-12-31T23:59:60Z',
  '9999-12-31T23:59:59.999Z',
  '9999-12-31T23:59:59-23:59',
  '0099-03-01T12:00:00+14:00',
  '2026-W01-1',
];

const NUMBERS = [
  0, -0, 5e-324, -5e-324, 2.2250738585072014e-308, 1e-7, 0.1, -0.30000000000000004, 2251799813685249.5,
  9_007_199_254_740_991, -9_007_199_254_740_991, 2_147_483_647, 2_147_483_648,
];
const NUMERIC_TEXTS = [
  '1e-400',
  '5e-324',
  '9007199254740991',
  '-0',
  '1e15',
  '0.000000000000000000000000000000001',
];

const from = <T>(values: readonly T[]) => fc.constantFrom(...values);
const text = fc.oneof(from(ODD_TEXTS), from(LONG_TEXTS), fc.string({ unit: 'grapheme', maxLength: 20 }));
const number = fc.oneof(from(NUMBERS), fc.double({ noNaN: true, min: -9e15, max: 9e15 }));
const time = from(TIMES);
const scalar = fc.oneof(text, number, fc.boolean(), time);

/** Nested values, up to the maximum depth. */
const deep = fc.integer({ min: 1, max: 46 }).map((depth) => {
  let value: Json = 1;
  for (let level = 0; level < depth; level++)
    value = level % 2 === 0 ? { ['k'.repeat(level)]: value } : [value];
  return value;
});
const manyKeys = from([100, 3000]).map((count) =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`${index}${noise(60, index)}`, index])),
);
const value: fc.Arbitrary<Json> = fc.oneof(
  { weight: 8, arbitrary: scalar },
  { weight: 2, arbitrary: fc.array(scalar, { maxLength: 12 }) },
  { weight: 1, arbitrary: fc.constant(Array.from({ length: 600 }, (_, index) => noise(60, index))) },
  { weight: 1, arbitrary: deep },
  { weight: 1, arbitrary: manyKeys },
  { weight: 1, arbitrary: fc.constant(null) },
);
/** Few names, so that changes concern the same attributes. */
const attributeName = from(['n', 'list', 'object', LONG_TEXTS[0]!, LONG_TEXTS[2]!, '{"', '\u0001']);
const change: fc.Arbitrary<Json> = fc.oneof(
  value,
  number.map((inc) => ({ inc })),
  fc.record({ add: fc.array(scalar, { maxLength: 3 }) }),
  fc.record({ remove: fc.array(scalar, { maxLength: 3 }) }),
  fc.record({ $add: fc.array(fc.record({ id: scalar, v: value }), { maxLength: 3 }) }),
  fc.record({
    $update: fc.array(
      fc.record({
        $identifier_key: fc.constant('id'),
        $identifier_value: scalar,
        $new_object: fc.record({ v: value }),
      }),
      { maxLength: 2 },
    ),
  }),
  fc.record({
    $remove: fc.array(fc.record({ $identifier_key: fc.constant('id'), $identifier_value: scalar }), {
      maxLength: 2,
    }),
  }),
);

const externalId = from(EXTERNAL_IDS);
const named: fc.Arbitrary<Record<string, Json>> = fc.oneof(
  { weight: 6, arbitrary: externalId.map((external_id) => ({ external_id })) },
  { weight: 2, arbitrary: from(ALIASES).map((user_alias) => ({ user_alias, _update_existing_only: false })) },
  { weight: 1, arbitrary: from(EMAILS).map((email) => ({ email })) },
  { weight: 1, arbitrary: from(PHONES).map((phone) => ({ phone })) },
);

const location = fc.record({
  latitude: fc.oneof(from([-90, 90, 5e-324, -0]), from(['5e-324', '-1e-400'])),
  longitude: from([-180, 180, 2.2250738585072014e-308]),
});
const standard: fc.Arbitrary<Record<string, Json>> = fc.record(
  {
    email: from(EMAILS),
    phone: from(PHONES),
    first_name: text,
    home_city: text,
    image_url: from(['x'.repeat(2048), noise(2048, 9)]),
    dob: from(['0001-01-01', '9999-12-31', '2000-02-29T00:00:00Z']),
    current_location: location,
    date_of_first_session: time,
    date_of_last_session: time,
    marked_email_as_spam_at: time,
    facebook: fc.record({ likes: fc.array(text, { maxLength: 3 }), num_friends: number }),
    email_subscribe: from(['subscribed', 'unsubscribed', 'opted_in']),
    push_tokens: fc.array(
      fc.record({
        app_id: from(['app', noise(255, 10)]),
        token: from([noise(2046, 11), noise(2046, 12), 't']),
      }),
      { maxLength: 3 },
    ),
  },
  { requiredKeys: [] },
);
const attributes = fc
  .tuple(named, standard, fc.dictionary(attributeName, change, { maxKeys: 4 }))
  .map(([who, own, custom]) => ({ ...custom, ...own, ...who }));

const activity = {
  app_id: fc.oneof(fc.constant('app'), text),
  properties: fc.dictionary(text, value, { maxKeys: 4 }),
};
const event = fc
  .tuple(
    named,
    fc.record(
      { name: fc.oneof(from(LONG_TEXTS), text), time, ...activity },
      { requiredKeys: ['name', 'time'] },
    ),
  )
  .map(([who, own]) => ({ ...own, ...who }));
const purchase = fc
  .tuple(
    named,
    fc.record(
      {
        product_id: fc.oneof(from(LONG_TEXTS), text, fc.integer()),
        currency: from(['EUR', 'usd']),
        price: fc.oneof(number, from(NUMERIC_TEXTS)),
        quantity: from<Json>([1, 100, '100']),
        time,
        ...activity,
      },
      { requiredKeys: ['product_id', 'currency', 'price', 'time'] },
    ),
  )
  .map(([who, own]) => ({ ...own, ...who }));

const some = <T>(one: fc.Arbitrary<T>, maxLength = 6) => fc.array(one, { minLength: 1, maxLength });
const address = from(EMAILS).map((email) => ({ email, prioritization: ['most_recently_updated'] }));
const selector = fc.oneof(
  externalId.map((external_id) => ({ external_id })),
  from(ALIASES).map((user_alias) => ({ user_alias })),
);

/** A request to an operation that uses a lane; all its values are at the allowed limits. */
export const hostileRequest: fc.Arbitrary<{ id: string; body: Record<string, Json> }> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .record(
        { attributes: some(attributes), events: some(event), purchases: some(purchase) },
        { requiredKeys: [] },
      )
      .map((body) => ({ id: 'users.track', body: body as Record<string, Json> })),
  },
  {
    weight: 2,
    arbitrary: some(
      fc.oneof(
        fc
          .tuple(selector, selector)
          .map(([merge, keep]) => ({ identifier_to_merge: merge, identifier_to_keep: keep })),
        fc
          .tuple(address, address)
          .map(([merge, keep]) => ({ identifier_to_merge: merge, identifier_to_keep: keep })),
      ),
      3,
    ).map((merge_updates) => ({ id: 'users.merge', body: { merge_updates } })),
  },
  {
    weight: 1,
    arbitrary: some(
      fc.tuple(from(ALIASES), externalId).map(([alias, external_id]) => ({ ...alias, external_id })),
    ).map((user_aliases) => ({ id: 'users.alias.new', body: { user_aliases } })),
  },
  {
    weight: 1,
    arbitrary: some(
      fc.tuple(from(ALIASES), from(ALIASES)).map(([{ alias_label, alias_name }, other]) => ({
        alias_label,
        old_alias_name: alias_name,
        new_alias_name: other.alias_name,
      })),
    ).map((alias_updates) => ({ id: 'users.alias.update', body: { alias_updates } })),
  },
  {
    weight: 1,
    arbitrary: some(
      fc.tuple(externalId, from(ALIASES)).map(([external_id, user_alias]) => ({ external_id, user_alias })),
    ).map((aliases_to_identify) => ({ id: 'users.identify', body: { aliases_to_identify } })),
  },
  {
    weight: 1,
    arbitrary: some(
      fc
        .tuple(externalId, externalId)
        .map(([current_external_id, new_external_id]) => ({ current_external_id, new_external_id })),
    ).map((external_id_renames) => ({ id: 'users.external_ids.rename', body: { external_id_renames } })),
  },
  {
    weight: 1,
    arbitrary: some(externalId, 2).map((external_ids) => ({ id: 'users.delete', body: { external_ids } })),
  },
  {
    weight: 1,
    arbitrary: fc
      .tuple(some(from(EMAILS)), from(['subscribed', 'unsubscribed']))
      .map(([email, subscription_state]) => ({ id: 'email.status', body: { email, subscription_state } })),
  },
);

export const everybody = { external_ids: EXTERNAL_IDS, user_aliases: ALIASES };
