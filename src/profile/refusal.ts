/**
 * Every reason for which an object can be refused, with its meaning for an operator. The names are stored, returned by
 * GET /requests/{request_id} and used as label values of a metric, so they must not change.
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
  other: 'A worker refused the object; the dead letter has the cause.',
} as const;

export type RejectionReason = keyof typeof rejectionReasons;

/**
 * Returns the meaning of a stored reason. Returns an empty text for an unknown one, which a later release may have
 * written.
 */
export function meaningOf(reason: string): string {
  return Object.hasOwn(rejectionReasons, reason) ? rejectionReasons[reason as RejectionReason] : '';
}

/** The cause of a refusal. It is stored instead of the text, because the text may contain a value. */
export interface RefusalCause {
  reason: RejectionReason;
  /** Path of the field without array positions. Empty if the rule concerns several fields or the whole object. */
  field: string;
}

/** A rule that an object or a request breaks. */
export interface Refusal extends RefusalCause {
  /** Text with the field and the rule. It is part of the API, because clients match on it. */
  error: string;
}

export function refuse(reason: RejectionReason, field: string, error: string): Refusal {
  return { error, reason, field };
}

export function required(field: string): Refusal {
  return refuse('required', field, `'${field}' is required`);
}

/**
 * Refuses an object without any of the fields.
 * @param names at least two names
 */
export function requiredOneOf(names: readonly string[]): Refusal {
  return refuse('required', names.join('|'), `${alternatives(names)} is required`);
}

/** Joins names for an error message: `'a', 'b' or 'c'`. */
export function alternatives(names: readonly string[]): string {
  const all = names.map((name) => `'${name}'`);
  return `${all.slice(0, -1).join(', ')} or ${all.at(-1)}`;
}

/**
 * Refuses a field that breaks a rule.
 * @param rule sentence after the colon, for example `it must be a number`
 */
export function invalid(field: string, rule: string, reason: RejectionReason = 'invalid'): Refusal {
  return refuse(reason, field, `'${field}' is not valid: ${rule}`);
}

const POSITION = /\[\d+\]/g;

/**
 * Removes array positions from a path, so that all elements are the same field: `items[3].price` becomes
 * `items[].price`.
 */
export function withoutPositions(path: string): string {
  return path.replaceAll(POSITION, '[]');
}
