import { normalizeEmail } from './email.ts';
import type { Json } from './json.ts';
import { normalizePhone } from './phone.ts';
import { isRecord } from './record.ts';

/** Unique in its workspace as a pair; both parts are non-empty and at most 236 bytes. */
export type UserAlias = { alias_name: string; alias_label: string };

/** The one identifier that addresses an object. */
export type Identifier =
  | { external_id: string }
  | { user_alias: UserAlias }
  /** 24 lower-case hex digits. */
  | { service_id: string }
  /** Lower-case. */
  | { email: string }
  /** E.164. */
  | { phone: string };

/** The longest external id, in bytes of UTF-8. */
export const MAX_EXTERNAL_ID_BYTES = 987;
const MAX_ALIAS_BYTES = 236;
const SERVICE_ID = /^[0-9a-f]{24}$/;

/**
 * Chooses the identifier that addresses an object: external id, alias, service id, email, phone, in this
 * order. Email and phone beside one of the first three are data, not addresses.
 *
 * @param serviceIdField wire name of the service id
 */
export function identifierOf(
  object: Record<string, Json>,
  serviceIdField: string,
): { identifier: Identifier } | { error: string } {
  const { external_id, user_alias, email, phone } = object;
  if (isGiven(external_id)) return externalId(external_id);
  if (isGiven(user_alias) && !isEmptyAlias(user_alias)) return alias(user_alias);
  const serviceId = object[serviceIdField];
  if (isGiven(serviceId)) {
    return typeof serviceId === 'string' && SERVICE_ID.test(serviceId)
      ? { identifier: { service_id: serviceId } }
      : { error: `'${serviceIdField}' is not valid: it must be 24 lower-case hexadecimal digits` };
  }
  if (isGiven(email)) {
    const address = typeof email === 'string' ? normalizeEmail(email) : undefined;
    return address
      ? { identifier: { email: address } }
      : { error: "The value provided for the 'email' field is not a valid email." };
  }
  if (isGiven(phone)) {
    const digits = Number.isSafeInteger(phone) ? String(phone) : phone;
    const number = typeof digits === 'string' ? normalizePhone(digits) : undefined;
    return number?.valid
      ? { identifier: { phone: number.phone } }
      : { error: "'phone' is not valid: it must be a phone number in E.164 format" };
  }
  return { error: `'external_id', '${serviceIdField}', 'user_alias', 'email' or 'phone' is required` };
}

/** Whether an identifier that belongs to nobody makes a new profile. */
export function createsProfile(identifier: Identifier, updateExistingOnly: Json | undefined): boolean {
  if ('service_id' in identifier) return false;
  if ('user_alias' in identifier) return updateExistingOnly === false;
  return updateExistingOnly !== true;
}

function externalId(value: Json): { identifier: Identifier } | { error: string } {
  const id = typeof value === 'number' && Number.isSafeInteger(value) ? String(value) : value;
  if (typeof id !== 'string') return { error: "'external_id' is not valid: it must be a string" };
  // A string of n characters has at most 3n bytes, so most need no counting.
  if (id.length * 3 > MAX_EXTERNAL_ID_BYTES && Buffer.byteLength(id) > MAX_EXTERNAL_ID_BYTES) {
    return { error: "'external_id' must be fewer than 988 bytes" };
  }
  return { identifier: { external_id: id } };
}

function alias(value: Json): { identifier: Identifier } | { error: string } {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    return { error: "'user_alias' is not valid: it must be an object with 'alias_name' and 'alias_label'" };
  }
  const { alias_name, alias_label } = value;
  for (const [name, part] of [
    ['alias_name', alias_name],
    ['alias_label', alias_label],
  ] as const) {
    if (typeof part !== 'string' || part === '') {
      return { error: `'user_alias.${name}' is not valid: it must be a non-empty string` };
    }
    if (part.length * 3 > MAX_ALIAS_BYTES && Buffer.byteLength(part) > MAX_ALIAS_BYTES) {
      return { error: `'user_alias.${name}' is not valid: it must be at most ${MAX_ALIAS_BYTES} bytes` };
    }
  }
  return {
    identifier: { user_alias: { alias_name: alias_name as string, alias_label: alias_label as string } },
  };
}

/** Whether an object carries one of the identifiers that belong to one user alone. */
export function namesOneUser(object: Record<string, Json>, serviceIdField: string): boolean {
  const { external_id, user_alias } = object;
  if (isGiven(external_id) || isGiven(object[serviceIdField])) return true;
  return isGiven(user_alias) && !isEmptyAlias(user_alias);
}

/** Neither a name nor a label. */
function isEmptyAlias(value: Json): boolean {
  return isRecord(value) && !isGiven(value.alias_name) && !isGiven(value.alias_label);
}

/** Empty strings and null are what clients send for "none". */
function isGiven(value: Json | undefined): value is Exclude<Json, null> {
  return value !== undefined && value !== null && value !== '';
}
