import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import { type Refusal, type RejectionReason, refuse, withoutPositions } from '../profile/refusal.ts';
import { isRecord, isUuid } from '../profile/values.ts';

/** Our own keywords with texts for errors. They are omitted from the documentation. */
export const annotations = ['rule', 'refusal'];

/**
 * The only Ajv instance of the process. It stops at the first error, because clients fix one error at a time
 * and hostile input should cost little.
 */
const ajv = new Ajv2020({
  allErrors: false,
  strict: true,
  allowUnionTypes: true,
  strictTypes: false,
  verbose: true,
  // Tests validate our schemas against the meta-schema. Here it would cost every start more than compiling
  // all of them.
  validateSchema: false,
  // Formats of our own output. Client input is parsed by more lenient rules.
  formats: {
    'date-time': /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/,
    uuid: isUuid,
  },
});
ajv.addVocabulary(['example', ...annotations]);

/** Returns whether a value matches the schema. `errors` are those of the last value that did not match. */
export interface Validator<T = unknown> {
  (value: unknown): value is T;
  errors?: ErrorObject[] | null;
}

/**
 * Returns a validator that is compiled at its first use. A process uses few of all schemas, and compiling all
 * would take more than a tenth of the processor time of a start; a test compiles every schema.
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
function missingMembers(schema: Schema, value: unknown, prefix: string): string[] {
  if (!isRecord(value)) return [];
  const { required = [], properties = {} } = schema as {
    required?: string[];
    properties?: Record<string, Schema>;
  };
  return [
    ...required.filter((name) => value[name] === undefined).map((name) => prefix + name),
    ...Object.entries(properties).flatMap(([name, member]) =>
      missingMembers(member, value[name], `${prefix}${name}.`),
    ),
  ];
}

/**
 * Describes an error with the field and the rule, for example `'name' is required` or `'time' is not valid:
 * it must be string`. All missing members are named together: `'name' and 'time' are required`. The `rule`
 * keyword of a schema gives the rule in words; an empty `rule` omits it. Its `refusal` keyword gives the
 * whole text, by keyword.
 */
export function describeError(error: ErrorObject): Refusal {
  const path = pathOf(error);
  return refuse(reasonOf(error), withoutPositions(path), textOf(error, path));
}

/**
 * Returns the path of the value, for example `push_tokens.token`; for a missing member, the path of the first
 * one.
 */
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
  // The schema allows an empty array in place of an empty object.
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
