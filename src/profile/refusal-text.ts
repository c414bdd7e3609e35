import { ALIAS_NO_OBJECT, INVALID_EMAIL, INVALID_PHONE } from './identifier.ts';
import { MASK } from './masked.ts';
import { meaningOf, type Refusal, required, requiredOneOf } from './refusal.ts';
import { invalidState } from './standard-attributes.ts';

/** The stored cause of a refusal. A later release may have written its reason. */
interface StoredCause {
  reason: string;
  field: string;
}

const nameOf = ({ reason, field }: StoredCause) => `${reason} ${field}`;

/** Texts of the API for causes that have only one text, by their names. */
const texts: ReadonlyMap<string, string> = new Map(
  [
    ...[INVALID_EMAIL, { ...INVALID_EMAIL, reason: 'wrong_type' as const }, INVALID_PHONE, ALIAS_NO_OBJECT],
    ...['email_subscribe', 'push_subscribe'].map(invalidState),
  ].map((refusal: Refusal) => [nameOf(refusal), refusal.error]),
);

/**
 * Returns the text with which the API refused an object, if its stored cause has only one text. Otherwise returns the
 * meaning of the reason, because the text is not stored: it may contain a value.
 */
export function textOfCause({ reason, field }: StoredCause): string {
  const text = texts.get(nameOf({ reason, field }));
  if (text !== undefined) return text;
  if (reason !== 'required' || field === '' || field.includes(MASK)) return meaningOf(reason);
  const names = field.split('|');
  return (names.length > 1 ? requiredOneOf(names) : required(field)).error;
}
