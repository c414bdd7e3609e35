import { ApiError, BadRequest } from '../../errors.ts';
import { normalizeEmail } from '../../profile/email.ts';
import type { Json } from '../../profile/json.ts';
import { normalizePhone } from '../../profile/phone.ts';
import { toProfileId } from '../../profile/service-id.ts';
import { findUnstorable } from '../../profile/values.ts';
import type { Wanted } from '../../store/export/find-exported.ts';

/** External ids, service ids and aliases of one request. */
export const MAX_IDS = 50;

const SERVICE_ID = /^[0-9a-f]{24}$/;

/** An identifier as its sender knows it, and as the store does; without the latter nobody can have it. */
export interface Asked {
  sent: string;
  key: Omit<Wanted, 'place'> | undefined;
}

type Alias = { alias_name: string; alias_label: string };

/**
 * The identifiers of a request whose shape is right already, in the order external ids, aliases, service ids,
 * email address, phone, device id. An identifier that breaks the rules of its kind is one that nobody has.
 *
 * @throws {BadRequest|ApiError} when there is none, or more than 50 ids and aliases
 */
export function readAsked(body: Record<string, Json>, serviceIdField: string): Asked[] {
  const externalIds = listOf(body.external_ids).map(String).map(externalId);
  const aliases = (listOf(body.user_aliases) as Alias[]).map(alias);
  const serviceIds = [...listOf(body[serviceIdField]), ...listOf(body[`${serviceIdField}s`])]
    .map(String)
    .map(serviceId);
  if (externalIds.length + serviceIds.length > MAX_IDS) throw new ApiError('tooManyIds');
  if (externalIds.length + serviceIds.length + aliases.length > MAX_IDS)
    throw new ApiError('tooManyIdsAndAliases');

  const asked = [
    ...externalIds,
    ...aliases,
    ...serviceIds,
    ...listOf(body.email_address).map(String).map(email),
    ...listOf(body.phone).map(String).map(phone),
    ...listOf(body.device_id).map(String).map(device),
  ];
  if (asked.length === 0) {
    throw new BadRequest(
      `'external_ids', 'user_aliases', '${serviceIdField}', 'email_address', 'phone' or 'device_id' is required`,
    );
  }
  return asked;
}

/** Clients send one value where an array is meant, and null or an empty text for none. */
export function listOf(value: Json | undefined): Json[] {
  const list = Array.isArray(value) ? value : [value ?? null];
  return list.filter((element) => element !== null && element !== '');
}

function externalId(sent: string): Asked {
  return { sent, key: findUnstorable(sent) ? undefined : { external_id: sent } };
}

/** The typed clients read a list of strings, so an alias that nobody has is reported by its name. */
function alias({ alias_name, alias_label }: Alias): Asked {
  const unstorable = findUnstorable([alias_name, alias_label]);
  return { sent: alias_name, key: unstorable ? undefined : { alias_name, alias_label } };
}

function serviceId(sent: string): Asked {
  return { sent, key: SERVICE_ID.test(sent) ? { id: toProfileId(sent) } : undefined };
}

function email(sent: string): Asked {
  const address = findUnstorable(sent) ? undefined : normalizeEmail(sent);
  return { sent, key: address === undefined ? undefined : { email: address } };
}

function phone(sent: string): Asked {
  const number = normalizePhone(sent);
  return { sent, key: number?.valid ? { phone: number.phone } : undefined };
}

function device(sent: string): Asked {
  return { sent, key: findUnstorable(sent) ? undefined : { device_id: sent } };
}
