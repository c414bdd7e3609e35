import { ApiError, BadRequest } from '../../errors.ts';
import type { AcceptedGroupState } from '../../jobs/subscription.ts';
import { emailOf, type Identifier, phoneOf } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { findUnstorable } from '../../profile/values.ts';
import type { Channel } from '../../store/subscriptions/find-groups.ts';
import { BLOCKED } from '../blocked.ts';
import { elementsOf, type Refusal } from '../identity/elements.ts';
import { readExternalIdElement } from '../identity/external-id.ts';
import type { Caller } from '../operation.ts';

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

/**
 * Whose states an object sets.
 *
 * @param required what an object without anybody is told to carry
 * @throws {BadRequest|ApiError} when it names nobody, too many, both emails and phones, or what its group is not about
 */
export function readTargets(
  object: Record<string, Json>,
  channel: Channel,
  required: string,
  caller: Caller,
): Target[] {
  const given = (Object.keys(fields) as Kind[]).flatMap((kind) =>
    fields[kind].flatMap((field) => {
      const elements = object[field] === '' ? undefined : elementsOf(object, field, 'strings', 'tooManyIds');
      return elements && elements.length > 0 ? [{ kind, field, elements }] : [];
    }),
  );
  requireOneAddress(new Set(given.map(({ kind }) => kind)));
  for (const { kind, field } of given) requireChannel(channel, kind, field);
  if (given.length === 0) throw new BadRequest(`${required} is required`);
  return given.flatMap(({ kind, field, elements }) =>
    elements.map((element, index) => ({ field, index, ...readTarget(kind, field, element, caller) })),
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
  kind: Kind,
  field: string,
  element: Json,
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
