import { ApiError, BadRequest } from '../../errors.ts';
import type { AcceptedGroupState } from '../../jobs/envelope.ts';
import { normalizeEmail, normalizePhone } from '../../profile/addresses.ts';
import { emailOf, type Identifier, isGiven, phoneOf } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { invalid, type Refusal, refuse, required, requiredOneOf } from '../../profile/refusal.ts';
import { findUnstorable, uuidOf } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import type { Channel } from '../../store/subscription-states.ts';
import { elementsOf, email, externalId, MAX_ELEMENTS, phone, tooManyElements } from '../identity/elements.ts';
import { readExternalIdElement } from '../identity/selectors.ts';
import { BLOCKED_ID, type Caller } from '../operation.ts';
import { listOf, listOrOne, withPlus } from '../query-parameters.ts';

const INVALID_STATE = refuse(
  'invalid',
  'subscription_state',
  "'subscription_state' must be 'subscribed' or 'unsubscribed'",
);

/** What a request says of one group. */
interface Setting {
  subscription_group_id: string;
  subscription_state: AcceptedGroupState['subscription_state'];
  channel: Channel;
}

/** @throws {BadRequest|ApiError} when the group is not one of the caller's, or the state none */
export function readSetting(
  { subscription_group_id, subscription_state, use_double_opt_in_logic }: Record<string, Json>,
  caller: Caller,
): Setting {
  const id = readGroupId(subscription_group_id);
  const channel = caller.channelOf(id);
  if (channel === undefined) throw new ApiError('invalidSubscriptionGroup');
  if (!isGiven(subscription_state)) throw new BadRequest(required('subscription_state'));
  if (subscription_state !== 'subscribed' && subscription_state !== 'unsubscribed') {
    throw new BadRequest(INVALID_STATE);
  }
  // To subscribe somebody who has been promised a question first would be worse than to refuse.
  if (use_double_opt_in_logic === true && channel === 'sms' && subscription_state === 'subscribed') {
    throw new BadRequest(
      invalid('use_double_opt_in_logic', 'it must not be true, since no message can be sent to ask the user'),
    );
  }
  return { subscription_group_id: id, subscription_state, channel };
}

/**
 * A group's id in lower case.
 * @throws {BadRequest|ApiError} when it is missing, or can be no group's
 */
export function readGroupId(value: Json | undefined): string {
  if (!isGiven(value)) throw new BadRequest(required('subscription_group_id'));
  const id = typeof value === 'string' ? uuidOf(value) : undefined;
  if (id === undefined) throw new ApiError('invalidSubscriptionGroup');
  return id;
}

type Kind = 'external_id' | 'email' | 'phone';

type Field = NonNullable<AcceptedGroupState['input_array']>;

/** Names of each kind's array: clients send the singular to both forms of the endpoint. */
const fields: Record<Kind, Field[]> = {
  external_id: ['external_id', 'external_ids'],
  email: ['email', 'emails'],
  phone: ['phone', 'phones'],
};

const described: Record<Channel, string> = {
  email: "an email group takes 'external_id' or 'email'",
  sms: "an SMS group takes 'external_id' or 'phone'",
  whatsapp: "a WhatsApp group takes 'external_id' or 'phone'",
};

/** One element of an array, and whose state it means, if it can mean anybody. */
type Target = { list: Field; index: number } & ({ identifier: Identifier } | Refusal);

interface TargetRules {
  /** Of the group. */
  channel: Channel;
  /** Names of the lists of which one has to be there. */
  lists: readonly string[];
}

/**
 * Whose states an object sets.
 *
 * @throws {BadRequest|ApiError} when it names nobody, too many, both emails and phones, or what its group is not about
 */
export function readTargets(
  object: Record<string, Json>,
  { channel, lists }: TargetRules,
  caller: Caller,
): Target[] {
  const given = (Object.keys(fields) as Kind[]).flatMap((kind) =>
    fields[kind].flatMap((field) => {
      const elements =
        object[field] === ''
          ? undefined
          : elementsOf(object, field, { of: 'strings', tooMany: 'tooManyIds' });
      return elements && elements.length > 0 ? [{ kind, field, elements }] : [];
    }),
  );
  requireOneAddress(new Set(given.map(({ kind }) => kind)));
  for (const { kind, field } of given) requireChannel(channel, kind, field);
  if (given.length === 0) throw new BadRequest(requiredOneOf(lists));
  return given.flatMap((array) =>
    array.elements.map((element, index) => ({
      list: array.field,
      index,
      ...readTarget(element, array, caller),
    })),
  );
}

/** @throws {ApiError} when there are both emails and phones */
function requireOneAddress(kinds: ReadonlySet<Kind>): void {
  if (kinds.has('email') && kinds.has('phone')) throw new ApiError('emailAndPhone');
}

/** @throws {BadRequest} when a group of the channel has no states for such addresses */
export function requireChannel(channel: Channel, kind: Kind, field: string): void {
  if (kind === 'external_id' || (kind === 'email') === (channel === 'email')) return;
  throw new BadRequest(invalid(field, described[channel]));
}

function readTarget(
  element: Json,
  { kind, field }: { kind: Kind; field: string },
  { isBlocked }: Caller,
): { identifier: Identifier } | Refusal {
  const unstorable = findUnstorable(element);
  if (unstorable !== undefined) return unstorable;
  if (kind === 'email') return emailOf(element);
  if (kind === 'phone') return phoneOf(element);
  const read = readExternalIdElement(element, field);
  if ('error' in read) return read;
  return isBlocked(read.id) ? BLOCKED_ID : { identifier: { external_id: read.id } };
}

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
  if (kind === undefined) throw new BadRequest(requiredOneOf(KINDS));
  const names = given(kind);
  if (names.length > MAX_ELEMENTS) throw tooManyElements('tooManyIds', { field: kind, count: names.length });
  return { kind, names: names.map((name) => ({ meant: name, known: normal[kind](name) })) };
}

/** No number begins with a space: it is a + that was not encoded. */
const meant: Record<Kind, (sent: string) => string> = {
  external_id: (sent) => sent,
  email: withPlus,
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
  description:
    'Must not be true if you subscribe users to an SMS group: Penstock sends no message to confirm it.',
};

/** The lists that name whose states are set. */
export const targets = {
  external_id: listOrOne(
    externalId('The id that you gave the user. An id that matches no user has no effect.'),
    'Users by external id.',
  ),
  email: listOrOne(
    email,
    'Email addresses, for an email group. The state applies to all users who have the address now or later.',
  ),
  phone: listOrOne(
    phone,
    'Phone numbers, for an SMS or WhatsApp group. The state applies to all users who have the number now or later.',
  ),
} as const;

/** A parameter that may be repeated. */
const repeatable = (description: string): Schema => ({
  type: ['array', 'string'],
  items: { type: 'string' },
  description: `${description} At most 50. Repeat the parameter for each value, with or without [] after its name.`,
});

/** The parameters of a request that asks for states. */
export const queried = {
  external_id: repeatable('The ids that you gave the users. They take precedence over email and phone.'),
  email: repeatable('Email addresses. You cannot combine them with phone.'),
  phone: repeatable('Phone numbers in E.164. You cannot combine them with email.'),
} as const;
