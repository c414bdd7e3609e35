import { ApiError, BadRequest } from '../../errors.ts';
import { normalizeEmail, normalizePhone } from '../../profile/addresses.ts';
import { isGiven } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { findUnstorable } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import { listOf } from '../export/user-fields.ts';
import { arrayOf, email, externalId, MAX_ELEMENTS, phone } from '../identity/elements.ts';
import { type Kind, requireOneAddress } from './setting.ts';

/** Whose states a query asks for: as meant, and as the store knows it; without the latter nobody can have it. */
export interface Asked {
  kind: Kind;
  names: { meant: string; known: string | undefined }[];
}

/** Parameters that name users. */
const KINDS = ['external_id', 'email', 'phone'] as const;

/**
 * As `readAsked`; names that are there and blank are nobody's, which clients of this list are used to.
 *
 * @throws {BadRequest|ApiError} when no name is there, too many are, or both emails and phones
 */
export function readAskedOrNobody(query: Record<string, Json>): Asked {
  const isBlank = (kind: Kind) => query[kind] !== undefined && listOf(query[kind]).length === 0;
  const isNamed = KINDS.some((kind) => listOf(query[kind]).length > 0);
  const blank = isNamed ? undefined : KINDS.find(isBlank);
  return blank === undefined ? readAsked(query) : { kind: blank, names: [] };
}

/**
 * External ids come first; emails and phones beside them are passed over. Whatever is sent twice is asked once.
 *
 * @throws {BadRequest|ApiError} when nobody is asked for, too many, or both emails and phones
 */
export function readAsked(query: Record<string, Json>): Asked {
  const given = (kind: Kind) => [...new Set(listOf(query[kind]).map(String).map(meant[kind]))];
  const externalIds = given('external_id');
  const kinds = (['email', 'phone'] as const).filter((kind) => given(kind).length > 0);
  if (externalIds.length === 0) requireOneAddress(new Set(kinds));
  const kind = externalIds.length > 0 ? 'external_id' : kinds[0];
  if (kind === undefined) throw new BadRequest("'external_id', 'email' or 'phone' is required");
  const names = given(kind);
  if (names.length > MAX_ELEMENTS) throw new ApiError('tooManyIds');
  return { kind, names: names.map((name) => ({ meant: name, known: normal[kind](name) })) };
}

/** No address has a space, and no number begins with one: it is a + that was not encoded. */
const meant: Record<Kind, (sent: string) => string> = {
  external_id: (sent) => sent,
  email: (sent) => sent.replaceAll(' ', '+'),
  phone: (sent) => sent.replace(/^ /, '+'),
};

const normal: Record<Kind, (name: string) => string | undefined> = {
  external_id: (name) => (findUnstorable(name) === undefined ? name : undefined),
  email: (name) => (findUnstorable(name) === undefined ? normalizeEmail(name) : undefined),
  phone: (name) => {
    const number = normalizePhone(name);
    return number?.valid ? number.phone : undefined;
  },
};

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

/**
 * A whole number of a query string.
 *
 * @throws {BadRequest} when it is none, or outside of the bounds
 */
export function readWholeNumber(
  query: Record<string, Json>,
  name: string,
  { from, to, otherwise }: { from: number; to: number; otherwise: number },
): number {
  const value = query[name];
  if (!isGiven(value)) return otherwise;
  const number = typeof value === 'string' && /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
  if (number >= from && number <= to) return number;
  const bounds = to === Number.MAX_SAFE_INTEGER ? `${from} or more` : `${from} to ${to}`;
  throw new BadRequest(`'${name}' is not valid: it must be a whole number, ${bounds}`);
}

/** Where a page begins. */
export const readOffset = (query: Record<string, Json>) =>
  readWholeNumber(query, 'offset', { from: 0, to: Number.MAX_SAFE_INTEGER, otherwise: 0 });
