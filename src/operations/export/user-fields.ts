import { ApiError, BadRequest } from '../../errors.ts';
import { normalizeEmail, normalizePhone } from '../../profile/addresses.ts';
import { toProfileId, toServiceId, type UserAlias } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { requiredOneOf } from '../../profile/refusal.ts';
import { columnsWith } from '../../profile/standard-columns.ts';
import { findUnstorable } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import { userAlias } from '../../schemas/track.ts';
import type { StoredUser } from '../../store/export.ts';
import type { WantedUser } from '../../store/profile-search.ts';
import { listOf } from '../query-parameters.ts';

/**
 * A field of an exported user: its schema, and how to read its value if that differs from the stored member of the same
 * name.
 */
export interface UserField {
  schema: Schema;
  read?(user: StoredUser): Json | undefined;
  /** Value if the user has no data for the field. Without it, the field is omitted. */
  otherwise?: Json;
}

const text = (description: string): UserField => ({ schema: { type: 'string', description } });
const time = (description: string): UserField => ({
  schema: { type: 'string', format: 'date-time', description },
});
const flag = (description: string): UserField => ({ schema: { type: 'boolean', description } });
const object = (description: string): UserField => ({
  schema: { type: 'object', additionalProperties: true, description },
});
const state = (description: string): UserField => ({
  schema: { enum: ['subscribed', 'unsubscribed', 'opted_in'], description },
});
const listField = (properties: Record<string, Schema>, description: string): UserField => ({
  schema: { type: 'array', description, items: { type: 'object', properties } },
});

const ofType = { text, time, boolean: flag, json: object };

/** The fields of standard attributes. */
const attributeFields = Object.fromEntries(
  columnsWith(({ field }) => field).map(([name, { type, field }]) => [
    name,
    ofType[type as keyof typeof ofType](field!),
  ]),
);

const string = { type: 'string' };
const dateTime = { type: 'string', format: 'date-time' };
const summary = { name: string, first: dateTime, last: dateTime, count: { type: 'integer' } };

/** Range of the random bucket number of a user. */
const BUCKETS = 10_000;

/** The currency of `total_revenue`. */
const MAIN_CURRENCY = 'USD';

/**
 * Returns all fields of an exported user, in the order of the answer.
 *
 * @param serviceIdField wire name of the service id
 */
export function userFields(serviceIdField: string): Record<string, UserField> {
  return {
    created_at: time('Time at which the user was created.'),
    external_id: text('The id that you gave the user.'),
    user_aliases: {
      schema: {
        type: 'array',
        items: userAlias,
        description: 'Sorted by label. Empty if the user has none.',
      },
      otherwise: [],
    },
    [serviceIdField]: {
      schema: { type: 'string', pattern: '^[0-9a-f]{24}$', description: "The service's own id of the user." },
      read: ({ id }) => toServiceId(id),
    },
    random_bucket: {
      schema: {
        type: 'integer',
        minimum: 0,
        maximum: BUCKETS - 1,
        description: 'A number that never changes for a user. Use it to split users evenly.',
      },
      read: randomBucket,
    },
    ...attributeFields,
    last_coordinates: {
      schema: {
        type: 'array',
        items: { type: 'number' },
        minItems: 2,
        maxItems: 2,
        description: 'Longitude, then latitude.',
      },
      read: ({ longitude, latitude }) =>
        longitude === null || latitude === null ? undefined : [longitude, latitude],
    },
    custom_attributes: object('Custom attributes by name.'),
    custom_events: listField(summary, 'Each custom event with its first and last time and how often.'),
    purchases: listField(summary, 'Each product with its first and last purchase and how many pieces.'),
    total_revenue: {
      schema: { type: 'number', description: 'Revenue of the purchases in USD, or 0 without purchases.' },
      read: ({ revenue }) => revenue?.[MAIN_CURRENCY],
      otherwise: 0,
    },
    revenue: {
      schema: {
        type: 'object',
        additionalProperties: { type: 'number' },
        description: 'Revenue by currency. Amounts of different currencies are never added up.',
      },
      read: ({ revenue }) => {
        const { [MAIN_CURRENCY]: _, ...others } = revenue ?? {};
        return others;
      },
    },
    apps: listField(
      { name: string, sessions: { type: 'integer' }, first_used: dateTime, last_used: dateTime },
      'Each app with sessions of the user; `name` is its `app_id`.',
    ),
    devices: {
      ...listField({ device_id: string }, 'The devices of the push tokens.'),
      read: ({ push_tokens }) => {
        const ids = new Set(push_tokens?.map(({ device_id }) => device_id));
        return [...ids].map((device_id) => ({ device_id }));
      },
    },
    push_tokens: listField(
      { app: string, token: string, device_id: string },
      '`app` is the `app_id` as sent.',
    ),
    email_subscribe: state('State of the email address, shared by everyone who has it.'),
    email_opted_in_at: time('Time since which the state is `opted_in`. Absent in another state.'),
    email_unsubscribed_at: time('Time since which the state is `unsubscribed`. Absent in another state.'),
    email_hard_bounced_at: time('Time at which the address hard bounced.'),
    push_subscribe: state('State for push messages.'),
    subscription_groups: listField(
      {
        id: { type: 'string', format: 'uuid' },
        name: string,
        channel: { enum: ['email', 'sms', 'whatsapp'] },
        status: { enum: ['Subscribed', 'Unsubscribed'] },
      },
      'The groups with a state of the address or phone number, or else of the profile.',
    ),
  };
}

/** Converts a stored user to the answer's object. Fields without data are omitted unless they have a default. */
export function toUserObject(
  user: StoredUser,
  fields: [name: string, field: UserField][],
): Record<string, Json> {
  const shown: Record<string, Json> = {};
  for (const [name, { read, otherwise }] of fields) {
    const value = read ? read(user) : user[name];
    if (!isEmpty(value)) shown[name] = value;
    else if (otherwise !== undefined) shown[name] = otherwise;
  }
  return shown;
}

function isEmpty(value: Json | undefined): value is null | undefined {
  if (value === null || value === undefined) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/** Returns the bucket of a user from the last 48 bits of the service id, which are random. */
function randomBucket({ id }: StoredUser): number {
  return Number.parseInt(toServiceId(id).slice(12), 16) % BUCKETS;
}

/** Maximum number of external ids, service ids and aliases in one request. */
export const MAX_IDS = 50;

const SERVICE_ID = /^[0-9a-f]{24}$/;

/** An identifier of the request. */
export interface NamedUser {
  /** The text that the client sent. */
  sent: string;
  /** The search for its user. Undefined if the identifier is not valid. */
  key: Omit<WantedUser, 'place'> | undefined;
}

/**
 * Reads the identifiers of a validated request in this order: external ids, aliases, service ids, email address, phone,
 * device id. An identifier that breaks the rules of its kind is not an error: it matches no user.
 *
 * @throws {BadRequest|ApiError} if there is no identifier, or if there are more than 50 ids and aliases
 */
export function readNamedUsers(body: Record<string, Json>, serviceIdField: string): NamedUser[] {
  const externalIds = listOf(body.external_ids).map(String).map(externalId);
  const aliases = (listOf(body.user_aliases) as UserAlias[]).map(alias);
  const serviceIds = [...listOf(body[serviceIdField]), ...listOf(body[`${serviceIdField}s`])]
    .map(String)
    .map(serviceId);
  if (externalIds.length + serviceIds.length > MAX_IDS)
    throw tooMany('tooManyIds', externalIds.length + serviceIds.length);
  if (externalIds.length + serviceIds.length + aliases.length > MAX_IDS)
    throw tooMany('tooManyIdsAndAliases', externalIds.length + serviceIds.length + aliases.length);

  const named = [
    ...externalIds,
    ...aliases,
    ...serviceIds,
    ...listOf(body.email_address).map(String).map(email),
    ...listOf(body.phone).map(String).map(phone),
    ...listOf(body.device_id).map(String).map(device),
  ];
  if (named.length === 0) {
    throw new BadRequest(
      requiredOneOf(['external_ids', 'user_aliases', serviceIdField, 'email_address', 'phone', 'device_id']),
    );
  }
  return named;
}

function externalId(sent: string): NamedUser {
  return { sent, key: findUnstorable(sent) ? undefined : { externalId: sent } };
}

/** Reads an alias. Typed clients expect a list of strings, so an alias that matches no user is reported by its name. */
function alias({ alias_name, alias_label }: UserAlias): NamedUser {
  const unstorable = findUnstorable([alias_name, alias_label]);
  return {
    sent: alias_name,
    key: unstorable ? undefined : { aliasName: alias_name, aliasLabel: alias_label },
  };
}

function serviceId(sent: string): NamedUser {
  return { sent, key: SERVICE_ID.test(sent) ? { id: toProfileId(sent) } : undefined };
}

function email(sent: string): NamedUser {
  const address = findUnstorable(sent) ? undefined : normalizeEmail(sent);
  return { sent, key: address === undefined ? undefined : { email: address } };
}

function phone(sent: string): NamedUser {
  const number = normalizePhone(sent);
  return { sent, key: number?.valid ? { phone: number.phone } : undefined };
}

function device(sent: string): NamedUser {
  return { sent, key: findUnstorable(sent) ? undefined : { deviceId: sent } };
}

function tooMany(entry: 'tooManyIds' | 'tooManyIdsAndAliases', count: number): ApiError {
  return new ApiError(entry, { fact: `The request has ${count} of them; the limit is ${MAX_IDS}.` });
}
