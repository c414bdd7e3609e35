import type { Json } from '../../profile/json.ts';
import { isRecord, quoted } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import {
  type Attribute,
  allAttributes,
  findAttribute,
  isNotStored,
  MAX_PATH_LENGTH,
  withoutUrn,
} from './attributes.ts';
import { FilterError } from './filter.ts';
import { createBudget, invalid, MAX_VALUES, PATCH_OP, type Spend, USER } from './messages.ts';
import { combine, matches } from './resource.ts';
import { type Member, spellResource, spellValue } from './spell.ts';
import { readValueFilter, type ValueFilter } from './value-filter.ts';

/** A segment of a path: an attribute name, optionally with a filter of its values. */
const SEGMENT = /^([\w$-]+)(?:\[((?:[^"\]]|"(?:[^"\\]|\\.)*")*)\])?(?:\.(?=.)|$)/;

/** A step of a path. */
interface Step {
  attribute: Attribute;
  /** Selects values of a list. If absent, the step leads to the attribute as a whole. */
  filter?: ValueFilter;
}

/**
 * Reads a path of RFC 7644 §3.5.2 and checks that the attribute exists and may be changed. Only known attributes are
 * followed, so a path cannot reach members of every JavaScript object, for example `__proto__`.
 *
 * @returns undefined for an attribute that is not stored
 * @throws {ScimError} 400 `invalidPath` or `mutability`
 */
function readPath(path: string, field: 'path' | 'value'): Step[] | undefined {
  if (path.length > MAX_PATH_LENGTH)
    throw invalid(`'${field}' is not valid: a path has at most ${MAX_PATH_LENGTH} characters`, 'invalidPath');
  if (isNotStored(path)) return undefined;
  let rest = withoutUrn(path, USER);
  let among: Attribute[] | undefined = allAttributes;
  const steps: Step[] = [];
  while (rest !== '') {
    const [whole, name, inBrackets] = SEGMENT.exec(rest) ?? [];
    const attribute: Attribute | undefined = name === undefined ? undefined : findAttribute(among, name);
    if (!attribute)
      throw invalid(`'${field}' is not valid: there is no attribute '${quoted(path)}'`, 'invalidPath');
    if (attribute.mutability === 'readOnly')
      throw invalid(`'${field}' is not valid: '${attribute.name}' cannot be changed`, 'mutability');
    steps.push({
      attribute,
      ...(inBrackets !== undefined && { filter: readBrackets(inBrackets, attribute, { path, field }) }),
    });
    among = attribute.subAttributes;
    rest = rest.slice(whole!.length);
  }
  if (steps.length === 0) throw invalid(`'${field}' is not valid: a path in it is empty`, 'invalidPath');
  return steps;
}

/** The source of a path: the member `path`, or a name in `value`. */
interface PathSource {
  path: string;
  field: 'path' | 'value';
}

function readBrackets(text: string, attribute: Attribute, { path, field }: PathSource): ValueFilter {
  const wrong = (reason: string) =>
    invalid(`'${field}' is not valid: '${quoted(path)}' ${reason}`, 'invalidPath');
  if (!attribute.multiValued) throw wrong('is not a list, so it cannot have a filter');
  try {
    return readValueFilter(text, attribute);
  } catch (error) {
    if (!(error instanceof FilterError)) throw error;
    throw wrong(`has a filter that cannot be parsed${error.message && `. ${error.message}`}`);
  }
}

/** Finds the attributes along a plain path, for example `name.givenName`. Returns undefined if one does not exist. */
export function findByPath(path: string): Step[] | undefined {
  // A name may be as long as the body, while the deepest path has four parts.
  const steps: Step[] = [];
  if (path.length > MAX_PATH_LENGTH) return undefined;
  for (const name of withoutUrn(path, USER).split('.')) {
    const among = steps.length === 0 ? allAttributes : steps.at(-1)!.attribute.subAttributes;
    const attribute = findAttribute(among, name);
    if (!attribute) return undefined;
    steps.push({ attribute });
  }
  return steps;
}

const MAX_OPERATIONS = 100;

/**
 * Maximum work of the operations of one request, in values of an account that are read, compared or written. A long
 * text counts as several values. This much work takes tens of milliseconds.
 */
const MAX_WORK = 200_000;

/** Schema of the body of a PATCH (RFC 7644 §3.5.2). */
export const patchSchema: Schema = {
  type: 'object',
  required: ['schemas', 'Operations'],
  properties: {
    schemas: {
      type: 'array',
      maxItems: MAX_OPERATIONS,
      contains: { const: PATCH_OP },
      items: { type: 'string' },
      rule: `it must be an array of strings that holds ${PATCH_OP}`,
    },
    Operations: {
      type: 'array',
      minItems: 1,
      maxItems: MAX_OPERATIONS,
      rule: `it must be an array of 1 to ${MAX_OPERATIONS} operations`,
      items: {
        type: 'object',
        required: ['op'],
        rule: 'it must be an object',
        properties: {
          op: {
            type: 'string',
            pattern: '^(?:[Aa][Dd][Dd]|[Rr][Ee][Mm][Oo][Vv][Ee]|[Rr][Ee][Pp][Ll][Aa][Cc][Ee])$',
            description: 'Operation: add, remove or replace, in upper or lower case.',
            rule: 'it must be add, remove or replace',
          },
          path: {
            type: 'string',
            minLength: 1,
            maxLength: MAX_PATH_LENGTH,
            description: 'Attribute to change. If absent, the members of value are the attributes.',
            rule: `it must be a string of 1 to ${MAX_PATH_LENGTH} characters`,
          },
          value: { description: 'Value to add or replace, or values to remove from a list.' },
        },
      },
    },
  },
};

/** A validated operation. */
export type GivenOperation = { op: string; path?: string; value?: Json };

/**
 * Applies the operations in order. All of them are read and validated before the first one is applied. The caller must
 * validate the result like a body, because required attributes may be missing.
 *
 * @throws {ScimError} 400 by RFC 7644 §3.5.2: `invalidPath`, `noTarget`, `mutability`, `invalidValue`
 */
export function applyPatch(resource: Member, operations: GivenOperation[]): Member {
  const spendValues = createBudget(
    MAX_VALUES,
    () => `'Operations' are not valid: together they have more than ${MAX_VALUES} values`,
  );
  const changes = operations.flatMap((operation, index) =>
    readOperation(operation, spendValues).map((change) => ({ ...change, index, path: operation.path })),
  );
  let at = changes[0];
  const spend = createBudget(MAX_WORK, () => {
    const where = at?.path === undefined ? '' : `, whose path is '${quoted(at.path)}',`;
    return `'Operations.${at?.index}' is not valid: up to it${where} the operations compare and write more than ${MAX_WORK} values`;
  });
  let patched = resource;
  for (const change of changes) {
    at = change;
    patched = applyAt(patched, change.steps, { ...change, spend });
  }
  return spellResource(patched);
}

interface Change {
  op: 'add' | 'remove' | 'replace';
  steps: Step[];
  value?: Json;
}

/** A change before its value is validated. */
interface GivenChange {
  op: Change['op'];
  steps: Step[];
  given: Json | undefined;
}

/** A change with the budget for its work. */
type Charged = Change & { spend: Spend };

/** Reads an operation. Returns a change for each attribute that it names. */
function readOperation({ op: given, path, value }: GivenOperation, spend: Spend): Change[] {
  const op = given.toLowerCase() as Change['op'];
  if (op !== 'remove' && value === undefined)
    throw invalid(`'Operations' are not valid: ${op} needs a value`);
  if (path !== undefined) {
    const steps = readPath(path, 'path');
    return steps ? [toChange({ op, steps, given: value }, spend)] : [];
  }
  if (op === 'remove') throw invalid("'Operations' are not valid: remove needs a path", 'noTarget');
  // Some providers send the object as the only element of a list.
  const members = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (!isRecord(members) || Object.keys(members).length === 0)
    throw invalid(
      `'Operations' are not valid: without a path, the value of ${op} is an object with attributes`,
    );
  return Object.entries(members).flatMap(([name, member]) => {
    // Providers send back the whole resource. Read-only attributes are ignored, as in the body of a create.
    if (findByPath(name)?.at(-1)?.attribute.mutability === 'readOnly') return [];
    const steps = readPath(name, 'value');
    return steps ? [toChange({ op, steps, given: member }, spend)] : [];
  });
}

/** Validates the value of a change. Setting an attribute to null removes it (RFC 7643 §2.5). */
function toChange({ op, steps, given }: GivenChange, spend: Spend): Change {
  const { attribute, filter } = steps.at(-1)!;
  if (given === null) return { op: 'remove', steps };
  // The path or its filter already selects what to remove, so a sent value is ignored. Only a list needs the value.
  if (given === undefined || (op === 'remove' && (!attribute.multiValued || filter))) return { op, steps };
  const where = steps.map((step) => step.attribute.name).join('.');
  if (op === 'remove' && isEmpty(given))
    throw invalid(`'${where}' is not valid: name the values to remove, or leave value out to remove all`);
  return { op, steps, value: spellValue(given, attribute, { where, one: filter !== undefined, spend }) };
}

/** Returns whether a value of a remove is an empty list, or has an empty object, which would match every value. */
function isEmpty(given: Json): boolean {
  const values = Array.isArray(given) ? given : [given];
  return values.length === 0 || values.some((one) => isRecord(one) && Object.keys(one).length === 0);
}

/** Returns a copy of the object with the change. Each member is an attribute with a value of the right type. */
function applyAt(target: Member, [step, ...rest]: Step[], change: Charged): Member {
  const { op, value, spend } = change;
  const { attribute, filter } = step!;
  const { name } = attribute;
  const current = target[name] ?? undefined;
  spend(1);
  if (filter)
    return { ...target, [name]: applyToMatching((current ?? []) as Json[], [step!, ...rest], change) };
  if (rest.length > 0) {
    if (op === 'remove' && current === undefined) return target;
    const apply = (one: Json) => applyAt(one as Member, rest, change);
    // In a list, the change applies to each value.
    const changed = attribute.multiValued ? ((current ?? []) as Json[]).map(apply) : apply(current ?? {});
    return { ...target, [name]: changed };
  }
  if (op !== 'remove')
    return { ...target, [name]: combine(current, { op, value: value!, spend }, attribute) };
  // Without a value, the whole list is removed. If the list is required, the caller's validation reports it missing.
  if (attribute.multiValued && (value !== undefined || !attribute.required)) {
    const removed = (one: Json) =>
      value === undefined || (value as Json[]).some((wanted) => matches(one, wanted, { attribute, spend }));
    return { ...target, [name]: ((current ?? []) as Json[]).filter((one) => !removed(one)) };
  }
  const { [name]: _, ...others } = target;
  return others;
}

/**
 * Applies a change to the values of a list that its filter selects.
 *
 * @throws {ScimError} 400 `noTarget` if no value matches, unless an `add` can create the value that the filter
 * describes
 */
function applyToMatching(values: Json[], [step, ...rest]: Step[], change: Charged): Json[] {
  const { op, value, spend } = change;
  const { attribute, filter } = step!;
  const matched = values.map((one) => filter!.fits(one, spend));
  if (op === 'remove' && rest.length === 0) return values.filter((_, index) => !matched[index]);
  const changed = (one: Json): Json => {
    if (rest.length > 0) return applyAt(one as Member, rest, change);
    if (op === 'remove') return one;
    // In a list of strings, the filter compares each string as `value`.
    return attribute.subAttributes
      ? combine(one, { op, value: value!, spend }, { ...attribute, multiValued: false })
      : value!;
  };
  if (matched.includes(true)) return values.map((one, index) => (matched[index] ? changed(one) : one));
  // Some providers add a member to a value that does not exist yet. The filter describes this value, so it is created.
  if (op === 'add' && filter!.described) return [...values, changed(filter!.described)];
  throw invalid(`'path' is not valid: no value of '${attribute.name}' fits its filter`, 'noTarget');
}
