import { ApiError, BadRequest } from '../../errors.ts';
import type { AcceptedGroupState } from '../../jobs/payloads.ts';
import { emailOf, type Identifier, isGiven, phoneOf } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { findUnstorable, uuidOf } from '../../profile/values.ts';
import type { Channel } from '../../store/subscription-states.ts';
import { elementsOf, type Refusal } from '../identity/elements.ts';
import { readExternalIdElement } from '../identity/identify-arrays.ts';
import { BLOCKED, type Caller } from '../operation.ts';

/** What a request says of one group. */
export interface Setting {
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
  if (!isGiven(subscription_state)) throw new BadRequest("'subscription_state' is required");
  if (subscription_state !== 'subscribed' && subscription_state !== 'unsubscribed') {
    throw new BadRequest("'subscription_state' must be 'subscribed' or 'unsubscribed'");
  }
  // To subscribe somebody who has been promised a question first would be worse than to refuse.
  if (use_double_opt_in_logic === true && channel === 'sms' && subscription_state === 'subscribed') {
    throw new BadRequest(
      "'use_double_opt_in_logic' is not valid: it must not be true, since no message can be sent to ask the user",
    );
  }
  return { subscription_group_id: id, subscription_state, channel };
}

/**
 * A group's id in lower case.
 * @throws {BadRequest|ApiError} when it is missing, or can be no group's
 */
export function readGroupId(value: Json | undefined): string {
  if (!isGiven(value)) throw new BadRequest("'subscription_group_id' is required");
  const id = typeof value === 'string' ? uuidOf(value) : undefined;
  if (id === undefined) throw new ApiError('invalidSubscriptionGroup');
  return id;
}

export type Kind = 'external_id' | 'email' | 'phone';

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
export type Target = { field: Field; index: number } & ({ identifier: Identifier } | Refusal);

interface TargetRules {
  /** Of the group. */
  channel: Channel;
  /** What an object without anybody is told to carry. */
  required: string;
}

/**
 * Whose states an object sets.
 *
 * @throws {BadRequest|ApiError} when it names nobody, too many, both emails and phones, or what its group is not about
 */
export function readTargets(
  object: Record<string, Json>,
  { channel, required }: TargetRules,
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
  if (given.length === 0) throw new BadRequest(`${required} is required`);
  return given.flatMap((array) =>
    array.elements.map((element, index) => ({
      field: array.field,
      index,
      ...readTarget(element, array, caller),
    })),
  );
}

/** @throws {ApiError} when there are both emails and phones */
export function requireOneAddress(kinds: ReadonlySet<Kind>): void {
  if (kinds.has('email') && kinds.has('phone')) throw new ApiError('emailAndPhone');
}

/** @throws {BadRequest} when a group of the channel has no states for such addresses */
export function requireChannel(channel: Channel, kind: Kind, field: string): void {
  if (kind === 'external_id' || (kind === 'email') === (channel === 'email')) return;
  throw new BadRequest(`'${field}' is not valid: ${described[channel]}`);
}

function readTarget(
  element: Json,
  { kind, field }: { kind: Kind; field: string },
  { isBlocked }: Caller,
): { identifier: Identifier } | Refusal {
  const unstorable = findUnstorable(element);
  if (unstorable !== undefined) return { error: unstorable };
  if (kind === 'email') return emailOf(element);
  if (kind === 'phone') return phoneOf(element);
  const read = readExternalIdElement(element, field);
  if ('error' in read) return read;
  return isBlocked(read.id) ? { error: BLOCKED } : { identifier: { external_id: read.id } };
}
