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

/** A state that a request sets in one group. */
interface Setting {
  subscription_group_id: string;
  subscription_state: AcceptedGroupState['subscription_state'];
  channel: Channel;
}

/**
 * Reads a setting.
 * @throws {BadRequest|ApiError} if the workspace has no such group, or if the state is not valid
 */
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
  // The caller expects that the user must confirm. Subscribing the user without confirmation would be worse than a
  // refusal.
  if (use_double_opt_in_logic === true && channel === 'sms' && subscription_state === 'subscribed') {
    throw new BadRequest(
      invalid('use_double_opt_in_logic', 'it must not be true, since no message can be sent to ask the user'),
    );
  }
  return { subscription_group_id: id, subscription_state, channel };
}

/**
 * Reads a group id in lower case.
 * @throws {BadRequest|ApiError} if it is missing or not a UUID
 */
export function readGroupId(value: Json | undefined): string {
  if (!isGiven(value)) throw new BadRequest(required('subscription_group_id'));
  const id = typeof value === 'string' ? uuidOf(value) : undefined;
  if (id === undefined) throw new ApiError('invalidSubscriptionGroup');
  return id;
}

type Kind = 'external_id' | 'email' | 'phone';

type Field = NonNullable<AcceptedGroupState['input_array']>;

/** Names of each kind's array. Clients send the singular name to both versions of the endpoint. */
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

/** An element of an array, with its user or address, or with the reason why it is not valid. */
type Target = { list: Field; index: number } & ({ identifier: Identifier } | Refusal);

interface TargetRules {
  /** Channel of the group. */
  channel: Channel;
  /** Names of the lists, for the error if all of them are missing. */
  lists: readonly string[];
}

/**
 * Reads the users and addresses whose state an object sets.
 *
 * @throws {BadRequest|ApiError} if there are none, too many, both emails and phones, or addresses of another channel
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

/**
 * Requires addresses of one kind.
 * @throws {ApiError} if there are both emails and phones
 */
function requireOneAddress(kinds: ReadonlySet<Kind>): void {
  if (kinds.has('email') && kinds.has('phone')) throw new ApiError('emailAndPhone');
}

/**
 * Requires that a group of the channel has states for addresses of this kind.
 * @throws {BadRequest} if it has none
 */
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

/** The users or addresses of a query for states. */
export interface StateQuery {
  kind: Kind;
  /** `sent`: the name as sent. `key`: its form in the store, or undefined if it is not valid, so that no user can have it. */
  names: { sent: string; key: string | undefined }[];
}

/** Query parameters that name users. */
const KINDS = ['external_id', 'email', 'phone'] as const;

/**
 * Reads a query for states. If a name is sent but blank, the result has no names, which clients of this list rely on.
 *
 * @throws {BadRequest|ApiError} if no name is sent, too many are, or both emails and phones
 */
export function readStateQueryOrBlank(query: Record<string, Json>): StateQuery {
  const isBlank = (kind: Kind) => query[kind] !== undefined && listOf(query[kind]).length === 0;
  const isNamed = KINDS.some((kind) => listOf(query[kind]).length > 0);
  const blank = isNamed ? undefined : KINDS.find(isBlank);
  return blank === undefined ? readStateQuery(query) : { kind: blank, names: [] };
}

/**
 * Reads a query for states. External ids take precedence: emails and phones sent with them are ignored. Duplicates are
 * removed.
 *
 * @throws {BadRequest|ApiError} if there are no names, too many, or both emails and phones
 */
export function readStateQuery(query: Record<string, Json>): StateQuery {
  const given = (kind: Kind) => [...new Set(listOf(query[kind]).map(String).map(restorePlus[kind]))];
  const externalIds = given('external_id');
  const kinds = (['email', 'phone'] as const).filter((kind) => given(kind).length > 0);
  if (externalIds.length === 0) requireOneAddress(new Set(kinds));
  const kind = externalIds.length > 0 ? 'external_id' : kinds[0];
  if (kind === undefined) throw new BadRequest(requiredOneOf(KINDS));
  const names = given(kind);
  if (names.length > MAX_ELEMENTS) throw tooManyElements('tooManyIds', { field: kind, count: names.length });
  return { kind, names: names.map((name) => ({ sent: name, key: keyOf[kind](name) })) };
}

/** Restore each + that the client did not encode. A phone number does not begin with a space. */
const restorePlus: Record<Kind, (sent: string) => string> = {
  external_id: (sent) => sent,
  email: withPlus,
  phone: (sent) => sent.replace(/^ /, '+'),
};

const keyOf: Record<Kind, (name: string) => string | undefined> = {
  external_id: (name) => (findUnstorable(name) === undefined ? name : undefined),
  email: (name) => (findUnstorable(name) === undefined ? normalizeEmail(name) : undefined),
  phone: (name) => {
    const number = normalizePhone(name);
    return number?.valid ? number.phone : undefined;
  },
};

/**
 * Maximum milliseconds that the answer waits for a state to take effect, because callers often read the state next.
 * Together with the 700 ms that the queue may take, this is less than the 2 s after which clients give up.
 */
export const READ_BACK_WITHIN = 1000;

/** Id of the group in the documented examples. Readers must replace it by a group of their own. */
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

/** Schemas of the lists of users and addresses whose states are set. */
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

/** Schema of a parameter that may be repeated. */
const repeatable = (description: string): Schema => ({
  type: ['array', 'string'],
  items: { type: 'string' },
  description: `${description} At most 50. Repeat the parameter for each value, with or without [] after its name.`,
});

/** The query parameters of a query for states. */
export const stateParameters = {
  external_id: repeatable('The ids that you gave the users. They take precedence over email and phone.'),
  email: repeatable('Email addresses. You cannot combine them with phone.'),
  phone: repeatable('Phone numbers in E.164. You cannot combine them with email.'),
} as const;
