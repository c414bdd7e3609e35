import type { Json } from '../../profile/json.ts';
import { isRecord, quoted } from '../../profile/values.ts';
import type { Schema } from '../../schemas/compile.ts';
import {
  type Attribute,
  allAttributes,
  findAttribute,
  isNotStored,
  LONGEST_PATH,
  withoutUrn,
} from './attributes.ts';
import { FilterError } from './filter.ts';
import { createBudget, invalid, MAX_VALUES, PATCH_OP, type Spend, USER } from './messages.ts';
import { combine, matches } from './resource.ts';
import { type Member, spellResource, spellValue } from './spell.ts';
import { readValueFilter, type ValueFilter } from './value-filter.ts';

/** A name and, of a list, a filter of its values. */
const SEGMENT = /^([\w$-]+)(?:\[((?:[^"\]]|"(?:[^"\\]|\\.)*")*)\])?(?:\.(?=.)|$)/;

/** One step of a path. */
interface Step {
  attribute: Attribute;
  /** Which values of a list it goes to; absent: the attribute as a whole. */
  filter?: ValueFilter;
}

/**
 * Reads a path of RFC 7644 §3.5.2: it leads to an attribute that there is and that may be changed. So no name
 * that JavaScript has on every object is followed.
 *
 * @returns undefined for an attribute that is not stored
 * @throws {ScimError} 400 `invalidPath` or `mutability`
 */
function readPath(path: string, field: 'path' | 'value'): Step[] | undefined {
  if (path.length > LONGEST_PATH)
    throw invalid(`'${field}' is not valid: a path has at most ${LONGEST_PATH} characters`, 'invalidPath');
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

/** Where a path stands: in `path`, or as a name in `value`. */
interface PathPlace {
  path: string;
  field: 'path' | 'value';
}

function readBrackets(text: string, attribute: Attribute, { path, field }: PathPlace): ValueFilter {
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

/** Finds the attributes on the way of a plain path, for example `name.givenName`; undefined when there is none. */
export function findByPath(path: string): Step[] | undefined {
  // A name may be as long as a body; the deepest path has four parts.
  const found: Step[] = [];
  if (path.length > LONGEST_PATH) return undefined;
  for (const name of withoutUrn(path, USER).split('.')) {
    const among = found.length === 0 ? allAttributes : found.at(-1)!.attribute.subAttributes;
    const attribute = findAttribute(among, name);
    if (!attribute) return undefined;
    found.push({ attribute });
  }
  return found;
}

const MAX_OPERATIONS = 100;

/**
 * What the operations of one request may read, compare and write together, in values of an account; long texts count
 * for several. It takes some tens of milliseconds.
 */
const MAX_WORK = 200_000;

/** The body of a PATCH (RFC 7644 §3.5.2). */
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
            maxLength: LONGEST_PATH,
            description: 'Attribute to change. If absent, the members of value are the attributes.',
            rule: `it must be a string of 1 to ${LONGEST_PATH} characters`,
          },
          value: { description: 'Value to add or replace, or values to remove from a list.' },
        },
      },
    },
  },
};

/** An operation of the right form. */
export type GivenOperation = { op: string; path?: string; value?: Json };

/**
 * What the operations, one after the other, make of a resource. All of them are read and judged before the first one
 * is applied. The result has to be checked like a body: what is required may be missing.
 *
 * @throws {ScimError} 400 by RFC 7644 §3.5.2: `invalidPath`, `noTarget`, `mutability`, `invalidValue`
 */
export function applyPatch(resource: Member, operations: GivenOperation[]): Member {
  const spendValues = createBudget(
    MAX_VALUES,
    () => `'Operations' are not valid: together they have more than ${MAX_VALUES} values`,
  );
  const changes = operations.flatMap((operation, place) =>
    readOperation(operation, spendValues).map((change) => ({ ...change, place, path: operation.path })),
  );
  let at = changes[0];
  const spend = createBudget(MAX_WORK, () => {
    const where = at?.path === undefined ? '' : `, whose path is '${quoted(at.path)}',`;
    return `'Operations.${at?.place}' is not valid: up to it${where} the operations compare and write more than ${MAX_WORK} values`;
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

/** A change as it was sent. */
interface GivenChange {
  op: Change['op'];
  steps: Step[];
  given: Json | undefined;
}

/** A change with what its work is charged to. */
type Charged = Change & { spend: Spend };

/** One change for each attribute that the operation names. */
function readOperation({ op: given, path, value }: GivenOperation, spend: Spend): Change[] {
  const op = given.toLowerCase() as Change['op'];
  if (op !== 'remove' && value === undefined)
    throw invalid(`'Operations' are not valid: ${op} needs a value`);
  if (path !== undefined) {
    const steps = readPath(path, 'path');
    return steps ? [toChange({ op, steps, given: value }, spend)] : [];
  }
  if (op === 'remove') throw invalid("'Operations' are not valid: remove needs a path", 'noTarget');
  // Some providers send the object as the one element of a list.
  const members = Array.isArray(value) && value.length === 1 ? value[0] : value;
  if (!isRecord(members) || Object.keys(members).length === 0)
    throw invalid(
      `'Operations' are not valid: without a path, the value of ${op} is an object with attributes`,
    );
  return Object.entries(members).flatMap(([name, member]) => {
    // Providers send the whole resource back: what only the service writes is ignored, as in the body of a create.
    if (findByPath(name)?.at(-1)?.attribute.mutability === 'readOnly') return [];
    const steps = readPath(name, 'value');
    return steps ? [toChange({ op, steps, given: member }, spend)] : [];
  });
}

/** Null is an attribute without a value (RFC 7643 §2.5): to set it is to remove what there is. */
function toChange({ op, steps, given }: GivenChange, spend: Spend): Change {
  const { attribute, filter } = steps.at(-1)!;
  if (given === null) return { op: 'remove', steps };
  // Of what is no list there is but one value, and the path has named it.
  if (given === undefined || (op === 'remove' && (!attribute.multiValued || filter))) return { op, steps };
  const where = steps.map((step) => step.attribute.name).join('.');
  if (op === 'remove' && isEmpty(given))
    throw invalid(`'${where}' is not valid: name the values to remove, or leave value out to remove all`);
  return { op, steps, value: spellValue(given, attribute, { where, one: filter !== undefined, spend }) };
}

/** Whether a value of a remove names nothing, or has an element that would match every value. */
function isEmpty(given: Json): boolean {
  const values = Array.isArray(given) ? given : [given];
  return values.length === 0 || values.some((one) => isRecord(one) && Object.keys(one).length === 0);
}

/** An object as a change leaves it. It has no members but those of its attributes, each of the right type. */
function applyAt(target: Member, [step, ...rest]: Step[], change: Charged): Member {
  const { op, value, spend } = change;
  const { attribute, filter } = step!;
  const { name } = attribute;
  const current = target[name] ?? undefined;
  spend(1);
  if (filter)
    return { ...target, [name]: applyToChosen((current ?? []) as Json[], [step!, ...rest], change) };
  if (rest.length > 0) {
    if (op === 'remove' && current === undefined) return target;
    const within = (one: Json) => applyAt(one as Member, rest, change);
    // Of a list, the change is made in each value.
    const changed = attribute.multiValued ? ((current ?? []) as Json[]).map(within) : within(current ?? {});
    return { ...target, [name]: changed };
  }
  if (op !== 'remove')
    return { ...target, [name]: combine(current, { op, value: value!, spend }, attribute) };
  // Without a value all of the list goes; what is required is then found missing.
  if (attribute.multiValued && (value !== undefined || !attribute.required)) {
    const removed = (one: Json) =>
      value === undefined || (value as Json[]).some((wanted) => matches(one, wanted, { attribute, spend }));
    return { ...target, [name]: ((current ?? []) as Json[]).filter((one) => !removed(one)) };
  }
  const { [name]: _, ...others } = target;
  return others;
}

/**
 * A list as a change of the values that a filter chooses leaves it.
 *
 * @throws {ScimError} 400 `noTarget` when it chooses none and says of no value how it would be
 */
function applyToChosen(values: Json[], [step, ...rest]: Step[], change: Charged): Json[] {
  const { op, value, spend } = change;
  const { attribute, filter } = step!;
  const chosen = values.map((one) => filter!.fits(one, spend));
  if (op === 'remove' && rest.length === 0) return values.filter((_, index) => !chosen[index]);
  const changed = (one: Json): Json => {
    if (rest.length > 0) return applyAt(one as Member, rest, change);
    if (op === 'remove') return one;
    // A list of strings: each is the `value` that the filter speaks of.
    return attribute.subAttributes
      ? combine(one, { op, value: value!, spend }, { ...attribute, multiValued: false })
      : value!;
  };
  if (chosen.includes(true)) return values.map((one, index) => (chosen[index] ? changed(one) : one));
  // Some providers add to the value that a filter describes before it is there.
  if (op === 'add' && filter!.described) return [...values, changed(filter!.described)];
  throw invalid(`'path' is not valid: no value of '${attribute.name}' fits its filter`, 'noTarget');
}
