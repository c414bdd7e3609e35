import { randomFillSync } from 'node:crypto';
import { normalizeEmail, normalizePhone } from './addresses.ts';
import type { Json } from './json.ts';
import { invalid, type Refusal, refuse, requiredOneOf } from './refusal.ts';
import { asRecord } from './values.ts';

/** An alias. The pair is unique in its workspace. Both parts are non-empty and have at most 236 bytes. */
export type UserAlias = { alias_name: string; alias_label: string };

export type ExternalId = { external_id: string };

/** The identifier that addresses an object. */
export type Identifier =
  | ExternalId
  | { user_alias: UserAlias }
  /** 24 lower-case hex digits. */
  | { service_id: string }
  /** Lower case. */
  | { email: string }
  /** E.164. */
  | { phone: string };

/** An identifier that several users may share. */
export type Address = Extract<Identifier, { email: string } | { phone: string }>;

export function isAddress(identifier: Identifier): identifier is Address {
  return 'email' in identifier || 'phone' in identifier;
}

/** Maximum length of an external id in bytes of UTF-8. */
export const MAX_EXTERNAL_ID_BYTES = 987;
const MAX_ALIAS_BYTES = 236;
const SERVICE_ID = /^[0-9a-f]{24}$/;

export const ALIAS_NO_OBJECT = invalid(
  'user_alias',
  "it must be an object with 'alias_name' and 'alias_label'",
  'wrong_type',
);

/** Clients match on this text. */
export const INVALID_EMAIL = refuse(
  'invalid',
  'email',
  "The value provided for the 'email' field is not a valid email.",
);

export const INVALID_PHONE = invalid('phone', 'it must be a phone number in E.164 format');

/**
 * Chooses the identifier that addresses an object, in this order: external id, alias, service id, email, phone. If one
 * of the first three is present, email and phone are attributes.
 *
 * @param serviceIdField wire name of the service id
 */
export function identifierOf(
  object: Record<string, Json>,
  serviceIdField: string,
): { identifier: Identifier } | Refusal {
  const { external_id, user_alias, email, phone } = object;
  if (isGiven(external_id)) return externalIdOf(external_id);
  if (isGiven(user_alias) && !isEmptyAlias(user_alias)) return userAliasOf(user_alias);
  const serviceId = object[serviceIdField];
  if (isGiven(serviceId)) return serviceIdOf(serviceId, serviceIdField);
  if (isGiven(email)) return emailOf(email);
  if (isGiven(phone)) return phoneOf(phone);
  return requiredOneOf(['external_id', serviceIdField, 'user_alias', 'email', 'phone']);
}

/** Returns whether a new profile is created if no user has the identifier. */
export function createsProfile(identifier: Identifier, updateExistingOnly: Json | undefined): boolean {
  if ('service_id' in identifier) return false;
  if ('user_alias' in identifier) return updateExistingOnly === false;
  return updateExistingOnly !== true;
}

/**
 * Reads an external id. An integer is converted to its digits.
 *
 * @param field name of the field in error messages
 */
export function externalIdOf(
  value: Json,
  field = 'external_id',
): { identifier: { external_id: string } } | Refusal {
  const id = typeof value === 'number' && Number.isSafeInteger(value) ? String(value) : value;
  if (typeof id !== 'string') return invalid(field, 'it must be a string', 'wrong_type');
  // A string of n UTF-16 units has at most 3n bytes, so most ids need not be counted.
  if (id.length * 3 > MAX_EXTERNAL_ID_BYTES && Buffer.byteLength(id) > MAX_EXTERNAL_ID_BYTES) {
    return refuse('too_large', field, `'${field}' must be fewer than 988 bytes`);
  }
  return { identifier: { external_id: id } };
}

/** Reads a user alias object. It must have both parts. */
export function userAliasOf(value: Json): { identifier: { user_alias: UserAlias } } | Refusal {
  const alias = asRecord(value);
  if (!alias) {
    return ALIAS_NO_OBJECT;
  }
  const { alias_name, alias_label } = alias;
  const refusal =
    aliasPartError(alias_name, 'user_alias.alias_name') ??
    aliasPartError(alias_label, 'user_alias.alias_label');
  if (refusal !== undefined) return refusal;
  return {
    identifier: { user_alias: { alias_name: alias_name as string, alias_label: alias_label as string } },
  };
}

/**
 * Validates the name or the label of an alias. Returns undefined if the value is a valid string.
 *
 * @param field name of the value in error messages
 */
export function aliasPartError(value: Json | undefined, field: string): Refusal | undefined {
  if (typeof value !== 'string' || value === '') {
    return invalid(field, 'it must be a non-empty string', 'wrong_type');
  }
  if (value.length * 3 > MAX_ALIAS_BYTES && Buffer.byteLength(value) > MAX_ALIAS_BYTES) {
    return invalid(field, `it must be at most ${MAX_ALIAS_BYTES} bytes`, 'too_large');
  }
  return undefined;
}

/**
 * Reads a service id.
 * @param field name of the field in error messages
 */
export function serviceIdOf(value: Json, field: string): { identifier: { service_id: string } } | Refusal {
  return typeof value === 'string' && SERVICE_ID.test(value)
    ? { identifier: { service_id: value } }
    : invalid(field, 'it must be 24 lower-case hexadecimal digits');
}

/** Reads an email address and converts it to lower case. */
export function emailOf(value: Json): { identifier: { email: string } } | Refusal {
  const address = typeof value === 'string' ? normalizeEmail(value) : undefined;
  return address ? { identifier: { email: address } } : INVALID_EMAIL;
}

/** Reads a phone number as E.164. An integer is converted to its digits. */
export function phoneOf(value: Json): { identifier: { phone: string } } | Refusal {
  const digits = Number.isSafeInteger(value) ? String(value) : value;
  const number = typeof digits === 'string' ? normalizePhone(digits) : undefined;
  return number?.valid ? { identifier: { phone: number.phone } } : INVALID_PHONE;
}

/** Returns whether an object has an identifier of a single user. */
export function namesOneUser(object: Record<string, Json>, serviceIdField: string): boolean {
  return countPrimary(object, serviceIdField) > 0;
}

/** Counts the identifiers of an object that belong to a single user. */
export function countPrimary(object: Record<string, Json>, serviceIdField: string): number {
  const { external_id, user_alias } = object;
  const hasAlias = isGiven(user_alias) && !isEmptyAlias(user_alias);
  return Number(isGiven(external_id)) + Number(hasAlias) + Number(isGiven(object[serviceIdField]));
}

/** Returns whether an alias has neither a name nor a label. */
export function isEmptyAlias(value: Json): boolean {
  const alias = asRecord(value);
  return alias !== undefined && !isGiven(alias.alias_name) && !isGiven(alias.alias_label);
}

/** Returns whether a value is present. Clients send empty strings and null for absent values. */
export function isGiven(value: Json | undefined): value is Exclude<Json, null> {
  return value !== undefined && value !== null && value !== '';
}

const pool = Buffer.alloc(6 * 1024);
let used = pool.length;

/**
 * Creates a profile id: a UUIDv7 with 48 random bits, so that 24 hex digits can represent it without loss: 12 digits of
 * time and 12 random digits.
 *
 * @param now epoch milliseconds
 */
export function newProfileId(now: number): string {
  if (used === pool.length) {
    randomFillSync(pool);
    used = 0;
  }
  const random = pool.toString('hex', used, used + 6);
  used += 6;
  return toProfileId(now.toString(16).padStart(12, '0') + random);
}

/**
 * Encodes an identifier as text that Postgres can store and also compute itself: a letter for the kind, and
 * the value. An alias is the length of its label in bytes, the label and the name. A service id is the
 * profile's UUID.
 */
export function identifierText(identifier: Identifier): string {
  if ('external_id' in identifier) return `x:${identifier.external_id}`;
  if ('user_alias' in identifier) {
    const { alias_label, alias_name } = identifier.user_alias;
    return `a:${Buffer.byteLength(alias_label)}:${alias_label}${alias_name}`;
  }
  if ('service_id' in identifier) return `s:${toProfileId(identifier.service_id)}`;
  return 'email' in identifier ? `e:${identifier.email}` : `p:${identifier.phone}`;
}

/** Returns the value of an encoded identifier: the name of an alias, and a service id as clients know it. */
export function valueOfIdentifier(text: string): string {
  const value = text.slice(2);
  if (text.startsWith('s:')) return toServiceId(value);
  if (!text.startsWith('a:')) return value;
  const [head, bytes] = /^(\d+):/.exec(value)!;
  return Buffer.from(value.slice(head.length)).subarray(Number(bytes)).toString();
}

/** Returns the UUID for a service id (24 lower-case hex digits). */
export function toProfileId(serviceId: string): string {
  const time = serviceId.slice(0, 12);
  const random = serviceId.slice(12);
  return `${time.slice(0, 8)}-${time.slice(8)}-7${random.slice(0, 3)}-8${random.slice(3, 6)}-${random.slice(6)}000000`;
}

/** Returns the service id for the UUID of a profile. */
export function toServiceId(profileId: string): string {
  const hex = profileId.replaceAll('-', '');
  return hex.slice(0, 12) + hex.slice(13, 16) + hex.slice(17, 20) + hex.slice(20, 26);
}

/**
 * The ways to choose one of several profiles with the same address. Each value of a prioritization in turn keeps those
 * of the remaining profiles that have an external id, have none, or were updated most or least recently.
 */
export const prioritizations = [
  'identified',
  'unidentified',
  'most_recently_updated',
  'least_recently_updated',
] as const;
export type Prioritization = (typeof prioritizations)[number];
