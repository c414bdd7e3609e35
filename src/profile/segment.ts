import type { Json } from './json.ts';
import { columnNames, filterTexts } from './standard-columns.ts';
import { parseTime, toIso } from './time.ts';
import { findUnstorable, uuidOf } from './values.ts';

/** Standard attributes that a filter may use, by type. */
export const textAttributes: readonly string[] = ['external_id', ...filterTexts];
export const timeAttributes: readonly string[] = [
  ...['created_at', 'updated_at'],
  ...columnNames(({ type, isFilter }) => isFilter && type === 'time'),
];

type Scalar = string | number | boolean;

/** Conditions on one value, all of which must hold. Times are ISO 8601 in UTC. */
export interface Comparison {
  equals?: Scalar;
  in?: Scalar[];
  exists?: boolean;
  /** An array attribute contains this element. */
  contains?: Scalar;
  more_than?: number;
  less_than?: number;
  before?: string;
  after?: string;
  /** The time is at most this many days before the evaluation. */
  in_last_days?: number;
}

/** Conditions on the count and the times of an event or purchase. The count of a user without any is 0. */
export interface Happening {
  count_at_least?: number;
  count_at_most?: number;
  first_before?: string;
  first_after?: string;
  last_before?: string;
  last_after?: string;
  last_in_days?: number;
}

/** A validated filter, in the form in which it is sent and stored. */
export type Definition =
  | { all: Definition[] }
  | { any: Definition[] }
  | { none: Definition[] }
  | ({ attribute: string } & Comparison)
  | ({ custom_attribute: string | string[] } & Comparison)
  | { email_subscription: string }
  | { push_subscription: string }
  | { subscription_group: string; state: string }
  | ({ event: string } & Happening)
  | ({ purchase: string } & Happening)
  | ({ any_purchase: true } & Happening);

/** Refuses a filter. The message names the position and the rule. */
export class InvalidDefinition extends Error {}

/** Maximum length of a definition as JSON text, in characters, on the command line and in the console. */
export const MAX_DEFINITION_CHARACTERS = 1_048_576;

/** Limits that bound the cost of evaluating a user. */
const MAX_FILTERS = 50;
const MAX_DEPTH = 5;
const MAX_VALUES = 500;
const MAX_TEXT_LENGTH = 255;
const MAX_ATTRIBUTE_DEPTH = 10;
const MAX_DAYS = 36_500;
const MAX_COUNT = 1_000_000_000;

type Object_ = Record<string, Json>;
type Rule = { message: string; read(value: Json): Json | undefined };

const isObject = (value: unknown): value is Object_ =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= MAX_TEXT_LENGTH && findUnstorable(value) === undefined;
const isScalar = (value: Json): boolean =>
  typeof value === 'boolean' || (typeof value === 'number' && Number.isFinite(value)) || isText(value);

const rule = (message: string, holds: (value: Json) => boolean): Rule => ({
  message,
  read: (value) => (holds(value) ? value : undefined),
});
const whole = (from: number, to: number): Rule =>
  rule(
    `it must be a whole number, ${from} to ${to}`,
    (value) => Number.isSafeInteger(value) && Number(value) >= from && Number(value) <= to,
  );
const oneOf = (...words: string[]): Rule =>
  rule(`it must be ${words.map((word) => `'${word}'`).join(' or ')}`, (value) =>
    words.includes(value as string),
  );
const scalar = rule(
  `it must be a string of at most ${MAX_TEXT_LENGTH} characters, a number, true or false`,
  isScalar,
);
const number = rule('it must be a number', Number.isFinite);
const name = rule(
  `it must be a string of 1 to ${MAX_TEXT_LENGTH} characters`,
  (value) => isText(value) && value !== '',
);
const time: Rule = {
  message: 'it must be a time in ISO 8601',
  read(value) {
    const read = typeof value === 'string' ? parseTime(value) : undefined;
    return read === undefined ? undefined : toIso(read);
  },
};

const compared: Record<string, Rule> = {
  equals: scalar,
  in: rule(
    `it must be an array of 1 to ${MAX_VALUES} strings, numbers, true or false`,
    (value) =>
      Array.isArray(value) && value.length > 0 && value.length <= MAX_VALUES && value.every(isScalar),
  ),
  exists: rule('it must be true or false', (value) => typeof value === 'boolean'),
  contains: scalar,
  more_than: number,
  less_than: number,
  before: time,
  after: time,
  in_last_days: whole(1, MAX_DAYS),
};

const happened: Record<string, Rule> = {
  count_at_least: whole(0, MAX_COUNT),
  count_at_most: whole(0, MAX_COUNT),
  ...{ first_before: time, first_after: time, last_before: time, last_after: time },
  last_in_days: whole(1, MAX_DAYS),
};

const attributeNames: readonly string[] = [...textAttributes, ...timeAttributes];
const states = oneOf('subscribed', 'unsubscribed', 'opted_in');

/** The kinds of filters, by the member that names them: the rule of this member, and the rules of the other members. */
const kinds: Record<string, { own: Rule; may: Record<string, Rule>; must?: string[]; some?: boolean }> = {
  attribute: {
    own: rule(`it must be one of ${attributeNames.join(', ')}`, (value) =>
      attributeNames.includes(value as string),
    ),
    may: compared,
    some: true,
  },
  custom_attribute: {
    own: rule(
      `it must be the name of an attribute, or an array of 1 to ${MAX_ATTRIBUTE_DEPTH} names that leads into it`,
      (value) => {
        const path = Array.isArray(value) ? value : [value];
        return (
          path.length > 0 &&
          path.length <= MAX_ATTRIBUTE_DEPTH &&
          path.every((one) => isText(one) && one !== '')
        );
      },
    ),
    may: compared,
    some: true,
  },
  email_subscription: { own: states, may: {} },
  push_subscription: { own: states, may: {} },
  subscription_group: {
    own: rule(
      'it must be the id of a subscription group',
      (value) => typeof value === 'string' && uuidOf(value) !== undefined,
    ),
    may: { state: oneOf('subscribed', 'unsubscribed') },
    must: ['state'],
  },
  event: { own: name, may: happened },
  purchase: { own: name, may: happened },
  any_purchase: { own: rule('it must be true', (value) => value === true), may: happened },
};

const groups = ['all', 'any', 'none'] as const;

/**
 * Validates a filter: `{"all": […]}`, `{"any": […]}` or `{"none": […]}` with filters, or a leaf with one of the kinds
 * above. `{"all": []}` matches every user.
 *
 * @returns the filter, with its times in UTC
 * @throws {InvalidDefinition} with the position, the member and the rule
 */
export function readDefinition(given: Json): Definition {
  let count = 0;
  return read(given, 'definition', 1);

  function read(filter: Json, position: string, depth: number): Definition {
    if (++count > MAX_FILTERS)
      throw new InvalidDefinition(`${position}: there are more than ${MAX_FILTERS} filters`);
    if (!isObject(filter)) throw new InvalidDefinition(`${position}: a filter is an object`);
    const group = groups.find((word) => word in filter);
    if (group !== undefined) {
      requireOnly(filter, [group], position);
      const members = filter[group]!;
      if (!Array.isArray(members))
        throw new InvalidDefinition(`${position}.${group}: it must be an array of filters`);
      if (depth > MAX_DEPTH)
        throw new InvalidDefinition(`${position}: filters are nested more than ${MAX_DEPTH} deep`);
      return {
        [group]: members.map((member, index) => read(member, `${position}.${group}[${index}]`, depth + 1)),
      } as Definition;
    }
    return readLeaf(filter, position);
  }
}

function readLeaf(filter: Object_, position: string): Definition {
  const kind = Object.keys(kinds).find((word) => word in filter);
  if (kind === undefined)
    throw new InvalidDefinition(
      `${position}: a filter has one of ${[...groups, ...Object.keys(kinds)].join(', ')}`,
    );
  const { own, may, must = [], some = false } = kinds[kind]!;
  requireOnly(filter, [kind, ...Object.keys(may)], position);
  for (const word of must)
    if (!(word in filter)) throw new InvalidDefinition(`${position}: '${word}' is required with '${kind}'`);
  if (some && Object.keys(filter).length === 1)
    throw new InvalidDefinition(`${position}: '${kind}' requires one of ${Object.keys(may).join(', ')}`);
  const leaf = Object.fromEntries(
    Object.entries(filter).map(([word, value]) => {
      const { message, read } = word === kind ? own : may[word]!;
      const normalized =
        filter.attribute === 'email' && word !== kind ? toLowerCaseText(read(value)) : read(value);
      if (normalized === undefined)
        throw new InvalidDefinition(`${position}.${word} is not valid: ${message}`);
      return [word, normalized];
    }),
  );
  return leaf as Definition;
}

/** Converts addresses to lower case, the form in which they are stored. */
function toLowerCaseText(value: Json | undefined): Json | undefined {
  if (typeof value === 'string') return value.toLowerCase();
  return Array.isArray(value) ? value.map((one) => toLowerCaseText(one)!) : value;
}

function requireOnly(filter: Object_, allowed: string[], position: string): void {
  for (const word of Object.keys(filter))
    if (!allowed.includes(word))
      throw new InvalidDefinition(`${position}: '${word.slice(0, 60)}' cannot be used with '${allowed[0]}'`);
}

/** Standard attributes that do not identify a user. */
const NOT_IDENTIFYING: readonly string[] = [
  ...timeAttributes,
  ...columnNames(({ isPersonal }) => !isPersonal),
];

/**
 * Returns whether a filter uses identifying attributes. Its description would quote their values, and a count would
 * confirm them.
 */
export function usesPersonalData(definition: Definition): boolean {
  for (const group of groups) {
    const members = (definition as unknown as Record<string, Definition[] | undefined>)[group];
    if (members) return members.some(usesPersonalData);
  }
  if ('attribute' in definition) return !NOT_IDENTIFYING.includes(definition.attribute);
  return 'custom_attribute' in definition;
}

/** An attribute that a filter uses. A custom attribute has the path of names to its value. */
export type FilterAttribute = { attribute: string } | { path: string[] };

/** Returns the attributes that a filter uses, each once. */
export function filterAttributes(definition: Definition): FilterAttribute[] {
  const found = new Map<string, FilterAttribute>();
  const visit = (filter: Object_): void => {
    for (const group of groups) for (const member of (filter[group] ?? []) as Object_[]) visit(member);
    const { attribute, custom_attribute: custom } = filter as { attribute?: string; custom_attribute?: Json };
    if (attribute !== undefined) found.set(attribute, { attribute });
    if (custom !== undefined) found.set(JSON.stringify(custom), { path: [custom].flat() as string[] });
  };
  visit(definition as unknown as Object_);
  return [...found.values()];
}

const joined = { all: ' and ', any: ' or ', none: ' or ' } as const;

/** Describes a filter in words. */
export function describe(definition: Definition): string {
  const filter = definition as unknown as Object_;
  for (const group of groups) {
    if (!(group in filter)) continue;
    const members = filter[group] as unknown as Definition[];
    if (members.length === 0) return group === 'any' ? 'nobody' : 'everyone';
    const [only, ...others] = members;
    if (group === 'none' && others.length === 0) {
      const without = describeAbsence(only as unknown as Object_);
      if (without !== undefined) return without;
    }
    const text = members.map(describe).join(joined[group]);
    return group === 'none' ? `not (${text})` : members.length === 1 ? text : `(${text})`;
  }
  const { kind, subject, conditions } = partsOf(filter);
  const name = Array.isArray(subject) ? subject.join('.') : String(subject);
  if (kind === 'any_purchase') return ['any purchase', ...conditions].join(' ');
  return [`${kind.replaceAll('_', ' ')} ${name}`, ...conditions].join(' ');
}

/** Describes that a user has no such event or purchase; undefined for a filter that also compares counts or times. */
function describeAbsence(filter: Object_): string | undefined {
  const { kind, subject, conditions } = partsOf(filter);
  const isSimple = Object.keys(filter).every((word) => word === kind || word === 'last_in_days');
  if (!isSimple || kinds[kind]?.may !== happened) return undefined;
  const what = kind === 'any_purchase' ? 'purchase' : `${kind} ${String(subject)}`;
  return [`no ${what}`, ...conditions].join(' ');
}

/** Returns the kind of a leaf, its subject and its conditions in words. */
function partsOf(filter: Object_): { kind: string; subject: Json | undefined; conditions: string[] } {
  // Find the kind by name, because jsonb does not keep the order of members.
  const kind = Object.keys(kinds).find((word) => word in filter) ?? '';
  const given = Object.keys(kinds[kind]?.may ?? {}).filter((word) => word in filter);
  const conditions = given.map((word) => {
    if (word === 'in_last_days' || word === 'last_in_days')
      return `${given.length > 1 && word === 'last_in_days' ? 'and last ' : ''}${lastDays(filter[word] as number)}`;
    return `${word.replaceAll('_', ' ')} ${JSON.stringify(filter[word])}`;
  });
  return { kind, subject: filter[kind], conditions };
}

const lastDays = (days: number): string => (days === 1 ? 'in the last day' : `in the last ${days} days`);
