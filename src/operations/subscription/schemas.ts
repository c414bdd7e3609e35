import type { Schema } from '../../schemas/schema.ts';
import { arrayOf, email, externalId, phone } from '../identity/schemas.ts';

/**
 * Milliseconds that a setting waits to take effect: whoever sets a state looks at it next. With the 700 that the queue
 * may take, this stays below the 2 s after which clients give up.
 */
export const READ_BACK_WITHIN = 1000;

/** The group of the documented examples; those who try them out have others. */
export const EXAMPLE_GROUP = '019c13ec-a2e2-7b61-8f0c-55a3d7000001';

export const groupId: Schema = {
  type: 'string',
  description: 'The id (UUID) of a subscription group of the workspace.',
};

export const subscriptionState: Schema = {
  enum: ['subscribed', 'unsubscribed'],
  description: '`subscribed`: in the group; `unsubscribed`: not in it.',
};

export const doubleOptIn: Schema = {
  type: 'boolean',
  default: false,
  description: 'Must not be true: a confirmation would need a message to the user.',
};

/** An array, or its one element. */
export const listOrOne = (items: Schema, description: string): Schema => ({
  ...arrayOf(items, `${description} A single one will do.`),
  type: ['array', ...[items.type].flat()],
});

/** The lists that name whose states are set. */
export const targets = {
  external_id: listOrOne(
    externalId('The id that you gave the user; one that nobody has changes nothing.'),
    'Users by external id.',
  ),
  email: listOrOne(
    email,
    'Email addresses, for a group of emails: of everyone who has them, and who will have them.',
  ),
  phone: listOrOne(
    phone,
    'Phone numbers, for a group of SMS or WhatsApp: of everyone who has them, and who will have them.',
  ),
} as const;

/** A parameter that may be repeated. */
export const repeatable = (description: string): Schema => ({
  type: ['array', 'string'],
  items: { type: 'string' },
  description: `${description} At most 50: the name repeated, or with [].`,
});

/** The parameters of a request that asks for states. */
export const queried = {
  external_id: repeatable('The ids that you gave the users; before email and phone.'),
  email: repeatable('Email addresses; not together with phone.'),
  phone: repeatable('Phone numbers in E.164; not together with email.'),
} as const;

/** A number in a query string. */
export const count = (minimum: number, maximum: number | undefined, description: string): Schema => ({
  type: ['integer', 'string'],
  minimum,
  ...(maximum !== undefined && { maximum }),
  description,
  rule: 'it must be a whole number',
});
