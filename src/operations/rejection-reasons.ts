import type { Rejection } from '../errors.ts';
import { maskName } from '../profile/masked.ts';
import { BLOCKED } from './operation.ts';

/**
 * Every reason for which an object can be refused, with its meaning for an operator. The names are stored, and they are
 * label values of a metric: they stay as they are.
 */
export const rejectionReasons = {
  required: 'A required field is missing.',
  invalid: 'A field has a value that its rule does not allow.',
  wrong_type: 'A field has another JSON type than its rule asks for.',
  too_large: 'A text, an object or a request is larger than its limit.',
  too_many: 'An array or a request has more elements than its limit.',
  unstorable:
    'A value cannot be stored: \\u0000, half of a surrogate pair, a number that loses digits, or too much nesting.',
  conflict: 'Fields of the object contradict each other.',
  blocked: 'The external id is on the block list of the workspace.',
  unknown_group: 'The workspace has no subscription group with this id.',
  unknown_user: 'No user has the external id that the object names.',
  in_use: 'Another user has the new external id already.',
  other: 'The error text belongs to none of the other reasons.',
} as const;

export type RejectionReason = keyof typeof rejectionReasons;

/** The meaning of a stored reason, which a later release may have written; empty for an unknown one. */
export function meaningOf(reason: string): string {
  return Object.hasOwn(rejectionReasons, reason) ? rejectionReasons[reason as RejectionReason] : '';
}

/** Error texts by reason. The first pattern that matches decides, so that special rules stand before general ones. */
const patterns: readonly (readonly [RejectionReason, RegExp])[] = [
  ['required', / (?:is|are) required\b|\bneeds an? '/],
  ['unstorable', /\\u0000|surrogate pair|nest deeper|more than \d+ keys|number is too large|lose digits/],
  ['unknown_group', /no subscription group has the id|^Invalid subscription group ID$/],
  ['unknown_user', /^no user (?:goes by|has) the /],
  ['in_use', /is already in use$/],
  [
    'conflict',
    /can not contain both|must not carry|must not differ|must differ from|name a value twice|is not deprecated|of the same type|must only have|but not both/,
  ],
  [
    'too_many',
    /at most \d+ (?:objects|elements)|more than \d+ |the most that one may have|^The max number of |^Max Input Length/,
  ],
  [
    'too_large',
    /at most \d+ (?:bytes|characters)|fewer than \d+ bytes|too large|1 to \d+ (?:bytes|characters)/,
  ],
  [
    'wrong_type',
    /must be (?:an? (?:non-empty )?(?:string|object|array|boolean|number)\b(?! of \d)(?! in )|of type|strings?\b)|must hold strings|needs? to be an/,
  ],
  ['invalid', / (?:is|are) not (?:a )?valid\b|^Invalid '|must (?:not )?be |must not |must have |may not /],
];

/** The beginning of an error text that names an element of an array beside the object: `external_ids[3]: `. */
const ELEMENT = /^(\w+)\[\d+\]: /;

/** Names of which one has to be there, as an error text lists them: `'email' or 'phone' is required`. */
const ALTERNATIVES = /^'[^']+'(?:, '[^']+')* or '[^']+' is required/;

/**
 * The field with which a text begins. A quoted word further on may be a value, as in "the external_id 'ada' is not
 * deprecated".
 */
const FIELD =
  /^(?:'|Invalid '|The value provided for the ')(.+?)'(?=(?:(?:, | and )'[^']*')* (?:field|is|are|must|needs)\b)/;

/** Array positions: `items[3].price` and `items[4].price` are one field. */
const POSITION = /\[\d+\]/g;

/** What is stored of a refusal instead of its text, which may quote a value. */
export interface RefusalCause {
  reason: RejectionReason;
  /** Path of the field without positions; empty if the text names none, MASK if the name may be personal data. */
  field: string;
}

/**
 * Finds the stable reason and the field of a refusal. It reads the text that the client gets, since those texts are part
 * of the API: clients match on them, and tests pin them.
 */
export function causeOf({ type }: Pick<Rejection, 'type'>): RefusalCause {
  if (type === BLOCKED) return { reason: 'blocked', field: 'external_id' };
  const [prefix = '', list] = ELEMENT.exec(type) ?? [];
  const text = type.slice(prefix.length);
  const reason = patterns.find(([, pattern]) => pattern.test(text))?.[0] ?? 'other';
  return { reason, field: list ?? fieldOf(text) };
}

function fieldOf(text: string): string {
  if (text.startsWith('each element of ')) return '';
  const alternatives = ALTERNATIVES.exec(text);
  if (alternatives)
    return alternatives[0]
      .match(/'[^']+'/g)!
      .map((name) => name.slice(1, -1))
      .join('|');
  const [, field = ''] = FIELD.exec(text) ?? [];
  return maskName(field.replaceAll(POSITION, '[]'));
}
