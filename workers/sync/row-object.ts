import { createHash } from 'node:crypto';
import { MAX_PAYLOAD_BYTES } from '../../src/integrations/columns.ts';
import type { IdentifierColumn, IntegrationKind, SourceRow } from '../../src/integrations/source.ts';
import {
  emailOf,
  externalIdOf,
  type Identifier,
  identifierText,
  isGiven,
  phoneOf,
  serviceIdOf,
  userAliasOf,
} from '../../src/profile/identifier.ts';
import type { Json } from '../../src/profile/json.ts';
import { asRecord } from '../../src/profile/values.ts';

/** Maximum members of an attributes payload. */
const MAX_ATTRIBUTES = 250;

type Named = { [Column in IdentifierColumn]?: string };

export type Refusal = { error: string };

interface RowRules {
  kind: Exclude<IntegrationKind, 'deletes'>;
  /** API name of the service id, and name of its column. */
  serviceIdField: string;
  updateExistingOnly: boolean;
}

/**
 * Converts a row to an object as a caller of /users/track would send it. The rules of that endpoint are not
 * checked here.
 */
export function toObject(row: SourceRow, rules: RowRules): { object: Record<string, Json> } | Refusal {
  const time = timeOf(row);
  if ('error' in time) return time;
  const named = userOf(row, rules);
  if ('error' in named) return named;
  const read = payloadOf(row);
  if ('error' in read) return read;
  const { payload } = read;
  const forbidden = identifierIn(payload, named.user, rules);
  if (forbidden) return { error: `PAYLOAD must not name an identifier: it has '${forbidden}'` };
  if (payload.push_token_import === true)
    return { error: "PAYLOAD must not have 'push_token_import': a row is about one user" };
  if (rules.kind === 'attributes' && Object.keys(payload).length > MAX_ATTRIBUTES)
    return { error: `PAYLOAD has more than ${MAX_ATTRIBUTES} attributes` };

  const object: Record<string, Json> = { ...payload, ...toApiNames(named.user, rules.serviceIdField) };
  if (rules.kind !== 'attributes' && !isGiven(payload.time)) object.time = time.updatedAt;
  // Without an explicit setting, an alias that does not exist yet creates a user.
  object._update_existing_only = rules.updateExistingOnly || (payload._update_existing_only ?? false);
  return { object };
}

/** Returns the time at which the row was changed. */
export function timeOf({ updatedAt, unreadable, broken }: SourceRow): { updatedAt: string } | Refusal {
  if (updatedAt !== undefined) return { updatedAt };
  if (broken) return { error: broken.reason };
  if (!unreadable) return { error: 'UPDATED_AT is required' };
  return { error: `UPDATED_AT is not valid: it must be a time, and is '${unreadable.slice(0, 100)}'` };
}

/**
 * Returns the identifier of the row's user, not validated. A deletion accepts only unique identifiers; other
 * columns are ignored.
 */
export function userOf(
  { identifiers }: SourceRow,
  { kind, serviceIdField }: { kind: IntegrationKind; serviceIdField: string },
): { user: Identifier } | Refusal {
  const { external_id, alias_name, alias_label, service_id, email, phone }: Named = identifiers;
  const serviceIdColumn = serviceIdField.toUpperCase();
  const users: [string, Identifier][] = [];
  if (isGiven(external_id)) users.push(['EXTERNAL_ID', { external_id: external_id as string }]);
  if (isGiven(alias_name) || isGiven(alias_label)) {
    if (!isGiven(alias_name)) return { error: 'ALIAS_LABEL requires ALIAS_NAME' };
    if (!isGiven(alias_label)) return { error: 'ALIAS_NAME requires ALIAS_LABEL' };
    users.push(['ALIAS_NAME', { user_alias: { alias_name, alias_label } as never }]);
  }
  if (isGiven(service_id)) users.push([serviceIdColumn, { service_id: service_id as string }]);
  if (kind !== 'deletes') {
    if (isGiven(email)) users.push(['EMAIL', { email: email as string }]);
    else if (isGiven(phone)) users.push(['PHONE', { phone: phone as string }]);
  }
  const [one, another] = users;
  if (!one) {
    const addresses = kind === 'deletes' ? '' : ', EMAIL, PHONE';
    return {
      error: `the row has no identifier: one of EXTERNAL_ID, ALIAS_NAME with ALIAS_LABEL, ${serviceIdColumn}${addresses} is required`,
    };
  }
  if (another) return { error: `a row must have exactly one identifier: it has ${one[0]} and ${another[0]}` };
  return { user: one[1] };
}

function payloadOf({ payload }: SourceRow): { payload: Record<string, Json> } | Refusal {
  if (!isGiven(payload)) return { error: 'PAYLOAD is required' };
  const text = payload as string;
  // A string of n characters has at most 3n bytes, so the bytes of most payloads need not be counted.
  if (text.length * 3 > MAX_PAYLOAD_BYTES && Buffer.byteLength(text) > MAX_PAYLOAD_BYTES)
    return { error: 'Payload was greater than 1MB' };
  let value: Json;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return { error: `PAYLOAD is not valid: it must be a JSON object (${(error as Error).message})` };
  }
  const record = asRecord(value);
  return record ? { payload: record } : { error: 'PAYLOAD is not valid: it must be a JSON object' };
}

/**
 * Returns the first identifier in a payload. As in /users/track, an address is an attribute if the user is
 * identified in another way.
 */
function identifierIn(
  payload: Record<string, Json>,
  user: Identifier,
  { kind, serviceIdField }: RowRules,
): string | undefined {
  const names = ['external_id', 'user_alias', serviceIdField];
  if (kind !== 'attributes' || 'email' in user || 'phone' in user) names.push('email');
  if (kind !== 'attributes' || 'phone' in user) names.push('phone');
  return names.find((name) => Object.hasOwn(payload, name) && isGiven(payload[name]));
}

function toApiNames(user: Identifier, serviceIdField: string): Record<string, Json> {
  return 'service_id' in user ? { [serviceIdField]: user.service_id } : user;
}

/**
 * Returns all users whom the columns of a row identify, although a valid row identifies only one: the kept
 * parts of a row are erased when any of these users is deleted. Invalid identifiers are ignored.
 */
export function namesOf(identifiers: SourceRow['identifiers']): string[] {
  const { external_id, alias_name, alias_label, service_id, email, phone } = identifiers;
  const named: ({ identifier: Identifier } | { error: string } | false)[] = [
    isText(external_id) && externalIdOf(external_id),
    isText(alias_name) && isText(alias_label) && userAliasOf({ alias_name, alias_label }),
    isText(service_id) && serviceIdOf(service_id, 'service_id'),
    isText(email) && emailOf(email),
    isText(phone) && phoneOf(phone),
  ];
  return named.flatMap((one) => (one && 'identifier' in one ? identifierText(one.identifier) : []));
}

function isText(value: Json | undefined): value is string {
  return typeof value === 'string' && value !== '';
}

/** Returns a digest of all columns that a sync uses, in hex. Equal rows have equal fingerprints. */
export function fingerprintOf({ updatedAt, unreadable, identifiers, payload }: SourceRow): string {
  const { external_id, alias_name, alias_label, service_id, email, phone } = identifiers;
  const content = [
    updatedAt ?? null,
    unreadable ?? null,
    external_id ?? null,
    alias_name ?? null,
    alias_label ?? null,
    service_id ?? null,
    email ?? null,
    phone ?? null,
    payload ?? null,
  ];
  return createHash('sha256').update(JSON.stringify(content)).digest('hex');
}

/** Counts equal fingerprints. */
export function tally(fingerprints: Iterable<string>): Map<string, number> {
  const counts = new Map<string, number>();
  for (const each of fingerprints) counts.set(each, (counts.get(each) ?? 0) + 1);
  return counts;
}
