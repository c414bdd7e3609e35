import type { Json } from '../../profile/json.ts';
import { isRecord } from '../../profile/values.ts';
import { type Attribute, findAttribute } from './attributes.ts';
import { type Filter, FilterError, type Operand, type Operator, parseFilter } from './filter.ts';
import type { Spend } from './messages.ts';
import type { Member } from './spell.ts';

/** Number of compared characters that cost as much as one value. `co` costs the product of both lengths. */
const PER_VALUE = 256;

/** A filter of list values in the path of a patch. */
export interface ValueFilter {
  fits(value: Json, spend: Spend): boolean;
  /**
   * The value that the filter describes, if the filter consists of `eq` comparisons joined by `and`. Otherwise
   * undefined.
   */
  described: Member | undefined;
}

/**
 * Reads a filter of list values. In a list of strings, each string is the member `value` (RFC 7643 §2.4).
 *
 * @param text at most MAX_PATH_LENGTH characters
 * @throws {FilterError}
 */
export function readValueFilter(text: string, attribute: Attribute): ValueFilter {
  const filter = parseFilter(text);
  const among = attribute.subAttributes ?? [{ ...attribute, name: 'value', multiValued: false }];
  const fits = compile(filter, among);
  return {
    fits: attribute.subAttributes ? fits : (value, spend) => fits({ value }, spend),
    described: attribute.subAttributes && describe(filter, among),
  };
}

type Test = (value: Json, spend: Spend) => boolean;

function compile(filter: Filter, among: Attribute[]): Test {
  switch (filter.op) {
    case 'and': {
      const tests = filter.filters.map((one) => compile(one, among));
      return (value, spend) => tests.every((test) => test(value, spend));
    }
    case 'or': {
      const tests = filter.filters.map((one) => compile(one, among));
      return (value, spend) => tests.some((test) => test(value, spend));
    }
    case 'not': {
      const test = compile(filter.filter, among);
      return (value, spend) => !test(value, spend);
    }
    case '[]': {
      const attribute = last(resolve(filter.path, among));
      if (!attribute.multiValued || !attribute.subAttributes)
        throw new FilterError(`'${filter.path}' is not a list.`);
      return some(filter.path, among, compile(filter.filter, attribute.subAttributes));
    }
    case 'pr':
      return some(filter.path, among, () => true);
    default: {
      const attribute = last(resolve(filter.path, among));
      return some(filter.path, among, comparison(filter.op, filter.operand, attribute));
    }
  }
}

/** Returns a test whether at least one value at the path passes `test`. */
function some(path: string, among: Attribute[], test: Test): Test {
  const names = resolve(path, among).map(({ name }) => name);
  const matchesAt = (value: Json | undefined, depth: number, spend: Spend): boolean => {
    spend(1);
    if (value === undefined || value === null) return false;
    if (Array.isArray(value)) return value.some((one) => matchesAt(one, depth, spend));
    if (depth === names.length) return test(value, spend);
    return isRecord(value) && matchesAt(value[names[depth]!], depth + 1, spend);
  };
  return (value, spend) => matchesAt(value, 0, spend);
}

function comparison(op: Operator, operand: Operand, { type, caseExact }: Attribute): Test {
  const folded = (text: string) => (caseExact && type !== 'boolean' ? text : text.toLowerCase());
  const wanted = folded(operand.text);
  const holds = comparisons[op];
  return (value, spend) => {
    const text = folded(String(value));
    spend((text.length * (op === 'co' ? wanted.length : 1)) / PER_VALUE);
    return operand.type === 'null' ? op === 'ne' : holds(text, wanted);
  };
}

const comparisons: Record<Operator, (text: string, wanted: string) => boolean> = {
  eq: (text, wanted) => text === wanted,
  ne: (text, wanted) => text !== wanted,
  co: (text, wanted) => text.includes(wanted),
  sw: (text, wanted) => text.startsWith(wanted),
  ew: (text, wanted) => text.endsWith(wanted),
  gt: (text, wanted) => text > wanted,
  ge: (text, wanted) => text >= wanted,
  lt: (text, wanted) => text < wanted,
  le: (text, wanted) => text <= wanted,
};

/**
 * Returns the attributes along a path.
 * @throws {FilterError} if an attribute does not exist
 */
function resolve(path: string, among: Attribute[]): Attribute[] {
  const resolved: Attribute[] = [];
  let attributes: Attribute[] | undefined = among;
  for (const name of path.split('.')) {
    const attribute = findAttribute(attributes, name);
    if (!attribute) throw new FilterError(`The attribute '${path}' does not exist.`);
    resolved.push(attribute);
    attributes = attribute.subAttributes;
  }
  return resolved;
}

const last = (attributes: Attribute[]): Attribute => attributes.at(-1)!;

function describe(filter: Filter, among: Attribute[]): Member | undefined {
  if (filter.op === 'and') {
    const all = filter.filters.map((one) => describe(one, among));
    return all.every((one) => one !== undefined) ? Object.assign({}, ...all) : undefined;
  }
  if (filter.op !== 'eq') return undefined;
  const [attribute, ...rest] = resolve(filter.path, among);
  if (rest.length > 0 || attribute!.multiValued || attribute!.subAttributes) return undefined;
  const { text } = filter.operand;
  const isBoolean = attribute!.type === 'boolean';
  return { [attribute!.name]: isBoolean ? text.toLowerCase() === 'true' : text };
}
