import fc from 'fast-check';
import type { AcceptedAttributes, AcceptedObject, UserSelector } from '../../src/jobs/envelope.ts';
import type { Identifier, Prioritization, UserAlias } from '../../src/profile/identifier.ts';
import type { StandardAttributes } from '../../src/profile/standard-columns.ts';

/** An object without ids, which is created separately in every workspace. */
export type Planned = Record<string, unknown> & { kind: AcceptedObject['kind'] };

/** A few names of each kind, so that objects share users. */
const externalIds = ['x1', 'x2', 'x3'];
const emails = ['a@x.com', 'b@x.com'];
const phones = ['+442071838750', '+14155552671'];
/** Service ids of the users that exist before a sequence begins; the last one is unused. */
export const serviceIds = [1, 2, 3].map((digit) => `0198a1b2c3d400000000000${digit}`);
/** `unknown` is not a group: an object that sets it cannot be applied. */
export const groups = ['email', 'sms', 'unknown'];

const externalId = fc.constantFrom(...externalIds);
const aliasName = fc.constantFrom('a', 'b', 'c');
const alias: fc.Arbitrary<UserAlias> = fc.record({
  alias_label: fc.constantFrom('l', 'm'),
  alias_name: aliasName,
});

const byOne: fc.Arbitrary<Identifier> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ external_id: externalId }) as fc.Arbitrary<Identifier> },
  { weight: 2, arbitrary: fc.record({ user_alias: alias }) },
  { weight: 1, arbitrary: fc.record({ service_id: fc.constantFrom(...serviceIds) }) },
);
const byAddress: fc.Arbitrary<Identifier> = fc.oneof(
  { weight: 2, arbitrary: fc.record({ email: fc.constantFrom(...emails) }) },
  { weight: 1, arbitrary: fc.record({ phone: fc.constantFrom(...phones) }) },
);
const identifier = fc.oneof({ weight: 3, arbitrary: byOne }, { weight: 2, arbitrary: byAddress });

const prioritization = fc.constantFrom<Prioritization[][]>(
  [],
  ['identified'],
  ['unidentified'],
  ['most_recently_updated'],
  ['least_recently_updated'],
  ['identified', 'most_recently_updated'],
  ['unidentified', 'least_recently_updated'],
  ['most_recently_updated', 'unidentified'],
);
const selector: fc.Arbitrary<UserSelector> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ identifier: byOne }) },
  { weight: 2, arbitrary: fc.record({ identifier: byAddress, prioritization }) },
);

const state = fc.constantFrom('subscribed' as const, 'unsubscribed' as const);
const standard: fc.Arbitrary<StandardAttributes> = fc.record(
  {
    email: fc.constantFrom(...emails, null),
    phone: fc.constantFrom(...phones, null),
    first_name: fc.constantFrom('Ada', 'Bea', null),
    marked_email_as_spam_at: fc.constantFrom('2026-01-02T00:00:00.000Z', null),
  },
  { requiredKeys: [] },
);
const attributes = fc
  .record(
    {
      identifier,
      standard,
      set: fc.record({ colour: fc.constantFrom('red', 'blue', null) }),
      change: fc.record({ points: fc.record({ inc: fc.constantFrom(1, 10) }) }),
      email_subscribe: fc.constantFrom('subscribed' as const, 'unsubscribed' as const, 'opted_in' as const),
      push_subscribe: state,
      subscription_groups: fc
        .tuple(fc.constantFrom(...groups, 'email', 'sms'), state)
        .map(([subscription_group_id, subscription_state]) => [
          { subscription_group_id, subscription_state },
        ]),
      push_tokens: fc.constantFrom('t1', 't2').map((token) => [{ app_id: 'app', token, device_id: token }]),
    },
    { requiredKeys: ['identifier'] },
  )
  .map((object): Planned => ({ kind: 'attributes', ...object, ...addresses(object) }));

/** Removes the address that names the user from the attributes. */
function addresses({ identifier: named, standard: given }: Partial<AcceptedAttributes>) {
  if (!named || !given) return {};
  const { email, phone, ...others } = given;
  return {
    standard: {
      ...others,
      ...(email !== undefined && !('email' in named) && { email }),
      ...(phone !== undefined && !('phone' in named) && { phone, phone_valid: phone === null ? null : true }),
    },
  };
}

const importOfTokens: fc.Arbitrary<Planned> = fc.record({
  kind: fc.constant('attributes' as const),
  push_tokens: fc.constantFrom('t1', 't2').map((token) => [{ app_id: 'app', token, device_id: token }]),
});
const event: fc.Arbitrary<Planned> = fc.record({
  kind: fc.constant('events' as const),
  identifier,
  name: fc.constantFrom('seen', 'left'),
  time: fc.constantFrom('2026-01-02T00:00:00.000Z', '2026-01-03T00:00:00.000Z'),
});
const purchase: fc.Arbitrary<Planned> = fc.record({
  kind: fc.constant('purchases' as const),
  identifier,
  product_id: fc.constantFrom('book', 'pen'),
  currency: fc.constantFrom('EUR', 'USD'),
  price: fc.constantFrom(1, 0.1, -2),
  quantity: fc.constantFrom(1, 2),
  time: fc.constant('2026-01-02T00:00:00.000Z'),
});

function operation<Kind extends AcceptedObject['kind']>(
  kind: Kind,
  body: fc.Arbitrary<Record<string, unknown>>,
): fc.Arbitrary<Planned> {
  return body.map((members) => ({ kind, ...members }));
}

const aliasNew = operation(
  'alias_new',
  fc.record({ user_alias: alias, external_id: externalId }, { requiredKeys: ['user_alias'] }),
);
const aliasUpdate = operation(
  'alias_update',
  fc.record({
    alias_label: fc.constantFrom('l', 'm'),
    old_alias_name: aliasName,
    new_alias_name: aliasName,
  }),
);
const identify = operation('identify', fc.record({ user: selector, external_id: externalId }));
const merge = operation('merge', fc.record({ merge: selector, keep: selector }));
const remove = operation('delete', fc.record({ user: selector }));
const rename = operation(
  'external_id_rename',
  fc
    .tuple(externalId, externalId)
    .filter(([current, next]) => current !== next)
    .map(([current_external_id, new_external_id]) => ({ current_external_id, new_external_id })),
);
const removeId = operation('external_id_remove', fc.record({ external_id: externalId }));

const groupState = operation(
  'group_state',
  fc.record({
    identifier: fc.oneof(fc.record({ external_id: externalId }), byAddress),
    subscription_group_id: fc.constantFrom(...groups),
    subscription_state: state,
  }),
);
const emailChange = operation(
  'email_change',
  fc.record(
    {
      email: fc.constantFrom(...emails),
      state: fc.constantFrom('subscribed', 'unsubscribed', 'opted_in'),
      hard_bounced: fc.boolean(),
      marked_as_spam: fc.constant(false),
    },
    { requiredKeys: ['email'] },
  ),
);

/** Generates sequences with every kind of object. */
export const sequence: fc.Arbitrary<Planned[]> = fc.array(
  fc.oneof(
    { weight: 6, arbitrary: attributes },
    { weight: 1, arbitrary: importOfTokens },
    { weight: 2, arbitrary: event },
    { weight: 1, arbitrary: purchase },
    { weight: 2, arbitrary: aliasNew },
    { weight: 2, arbitrary: aliasUpdate },
    { weight: 3, arbitrary: identify },
    { weight: 4, arbitrary: merge },
    { weight: 3, arbitrary: remove },
    { weight: 2, arbitrary: rename },
    { weight: 1, arbitrary: removeId },
    { weight: 3, arbitrary: groupState },
    { weight: 2, arbitrary: emailChange },
  ),
  { minLength: 2, maxLength: 14 },
);
