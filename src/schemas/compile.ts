import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import { type Refusal, type RejectionReason, refuse, withoutPositions } from '../profile/refusal.ts';
import { isRecord, isUuid } from '../profile/values.ts';

/** Our own keywords: the words of an error. They say nothing to a reader of the documentation. */
export const annotations = ['rule', 'refusal'];

/**
 * One Ajv for the whole process. It stops at the first error, since a caller mends one at a time and hostile input
 * should cost little.
 */
const ajv = new Ajv2020({
  allErrors: false,
  strict: true,
  allowUnionTypes: true,
  strictTypes: false,
  verbose: true,
  // Our own schemas, which the tests hold against the meta-schema: here that would cost every start more than all of them.
  validateSchema: false,
  // As we write them; what callers send is read by more lenient rules of its own.
  formats: {
    'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/,
    uuid: isUuid,
  },
});
ajv.addVocabulary(['example', ...annotations]);

/** Whether a value is as the schema says. `errors` are those of the last value that was not. */
export interface Validator<T = unknown> {
  (value: unknown): value is T;
  errors?: ErrorObject[] | null;
}

/**
 * A lazy validator, compiled at its first value. A process meets a few of all schemas, and all together would cost each
 * start more than a tenth of its processor time; a test compiles every one.
 */
export function compile<T>(schema: object): Validator<T> {
  let check: ValidateFunction<T> | undefined;
  const validate: Validator<T> = (value): value is T => {
    check ??= ajv.compile<T>(schema);
    if (check(value)) return true;
    validate.errors = check.errors ?? null;
    const [error] = validate.errors ?? [];
    if (error?.keyword === 'required') error.params.missing = missingMembers(schema as Schema, value, '');
    return false;
  };
  return validate;
}

/** Lists the required members that an object and the objects within it lack, as paths. */
function missingMembers(schema: Schema, value: unknown, place: string): string[] {
  if (!isRecord(value)) return [];
  const { required = [], properties = {} } = schema as {
    required?: string[];
    properties?: Record<string, Schema>;
  };
  return [
    ...required.filter((name) => value[name] === undefined).map((name) => place + name),
    ...Object.entries(properties).flatMap(([name, within]) =>
      missingMembers(within, value[name], `${place}${name}.`),
    ),
  ];
}

/**
 * Names the field and the rule: `'name' is required`, `'time' is not valid: it must be string`. All missing members are
 * named together: `'name' and 'time' are required`. A schema's
 * `rule` keyword gives the rule in words; an empty `rule` leaves the text without one. Its `refusal` keyword
 * gives, by keyword, the whole text.
 */
export function describeError(error: ErrorObject): Refusal {
  const path = pathOf(error);
  return refuse(reasonOf(error), withoutPositions(path), textOf(error, path));
}

/** Returns the path of the value, `push_tokens.token`; of a missing member, the path of the first one. */
function pathOf({ keyword, instancePath, params }: ErrorObject): string {
  const path = instancePath.slice(1).replaceAll('/', '.');
  return keyword === 'required' ? [path, params.missingProperty].filter(Boolean).join('.') : path;
}

/** Reasons by keyword of the schema; any other keyword has the reason `invalid`. */
const REASONS: Readonly<Record<string, RejectionReason>> = {
  required: 'required',
  type: 'wrong_type',
  maxLength: 'too_large',
  maxItems: 'too_many',
};

function reasonOf({ keyword, params }: ErrorObject): RejectionReason {
  // A schema allows an empty array as a second form of an empty object.
  if (keyword === 'maxItems' && params.limit === 0) return 'wrong_type';
  return REASONS[keyword] ?? 'invalid';
}

function textOf(error: ErrorObject, path: string): string {
  const annotated = error.parentSchema as { rule?: string; refusal?: Record<string, string> } | undefined;
  const refusal = annotated?.refusal?.[error.keyword];
  if (refusal !== undefined) return refusal;
  if (error.keyword === 'required') {
    const missing: string[] = error.params.missing ?? [];
    const names = (missing.includes(path) ? missing : [path]).map((name) => `'${name}'`);
    const last = names.pop();
    return names.length === 0 ? `${last} is required` : `${names.join(', ')} and ${last} are required`;
  }
  const rule = annotated?.rule ?? `it ${error.message}`;
  return `'${path || 'object'}' is not valid${rule ? `: ${rule}` : ''}`;
}

/** A JSON Schema (2020-12) literal. */
export type Schema = Readonly<Record<string, unknown>>;
