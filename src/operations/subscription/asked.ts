import { ApiError, BadRequest } from '../../errors.ts';
import { normalizeEmail } from '../../profile/email.ts';
import type { Json } from '../../profile/json.ts';
import { normalizePhone } from '../../profile/phone.ts';
import { findUnstorable } from '../../profile/values.ts';
import { listOf } from '../export/wanted.ts';
import { MAX_ELEMENTS } from '../identity/elements.ts';
import { type Kind, requireOneAddress } from './targets.ts';

/** Whose states a query asks for: as sent, and as the store knows it; without the latter nobody can have it. */
export interface Asked {
  kind: Kind;
  names: { sent: string; known: string | undefined }[];
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
  const given = (kind: Kind) => [...new Set(listOf(query[kind]).map(String))];
  const externalIds = given('external_id');
  const kinds = (['email', 'phone'] as const).filter((kind) => given(kind).length > 0);
  if (externalIds.length === 0) requireOneAddress(new Set(kinds));
  const kind = externalIds.length > 0 ? 'external_id' : kinds[0];
  if (kind === undefined) throw new BadRequest("'external_id', 'email' or 'phone' is required");
  const sent = given(kind);
  if (sent.length > MAX_ELEMENTS) throw new ApiError('tooManyIds');
  return { kind, names: sent.map((name) => ({ sent: name, known: normal[kind](name) })) };
}

const normal: Record<Kind, (sent: string) => string | undefined> = {
  external_id: (sent) => (findUnstorable(sent) === undefined ? sent : undefined),
  // No address has a space: it is a + that was not encoded.
  email: (sent) =>
    findUnstorable(sent) === undefined ? normalizeEmail(sent.replaceAll(' ', '+')) : undefined,
  phone: (sent) => {
    const number = normalizePhone(sent.replace(/^ /, '+'));
    return number?.valid ? number.phone : undefined;
  },
};
