import type { Json } from './json.ts';
import { parseTime, toIso } from './time.ts';
import { findUnstorable, uuidOf } from './values.ts';

/** Standard attributes that a filter may ask for, by the kind of their values. */
export const textAttributes = [
  ...['external_id', 'email', 'phone', 'first_name', 'last_name', 'gender', 'dob'],
  ...['home_city', 'country', 'language', 'time_zone'],
] as const;
export const timeAttributes = [
  ...['created_at', 'updated_at', 'date_of_first_session', 'date_of_last_session'],
] as const;

type Scalar = string | number | boolean;

/** What is asked of one value; all that is given has to hold. Times are ISO 8601 in UTC. */
export interface Comparison {
  equals?: Scalar;
  in?: Scalar[];
  exists?: boolean;
  /** An array attribute holds this element. */
  contains?: Scalar;
  more_than?: number;
  less_than?: number;
  before?: string;
  after?: string;
  /** The time lies so many days back, at most, when somebody asks. */
  in_last_days?: number;
}

/** What is asked of how often and when somebody did something. What never happened was done 0 times. */
export interface Happening {
  count_at_least?: number;
  count_at_most?: number;
  first_before?: string;
  first_after?: string;
  last_before?: string;
  last_after?: string;
  last_in_days?: number;
}

/** A filter as it is written and stored, once it has been judged. */
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

/** A filter that says nothing we could ask; its message names the place and the rule. */
export class InvalidDefinition extends Error {}

/** Longest definition as JSON text, in characters, on the command line and in the console. */
export const MAX_DEFINITION_CHARACTERS = 1_048_576;

/** Bounds what one look at a user costs. */
const MOST_FILTERS = 50;
const DEEPEST = 5;
const MOST_VALUES = 500;
const LONGEST = 255;
const DEEPEST_ATTRIBUTE = 10;
const MOST_DAYS = 36_500;
const MOST_COUNTED = 1_000_000_000;

type Object_ = Record<string, Json>;
type Rule = { says: string; reads(value: Json): Json | undefined };

const isObject = (value: unknown): value is Object_ =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isText = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= LONGEST && findUnstorable(value) === undefined;
const isScalar = (value: Json): boolean =>
  typeof value === 'boolean' || (typeof value === 'number' && Number.isFinite(value)) || isText(value);

const rule = (says: string, holds: (value: Json) => boolean): Rule => ({
  says,
  reads: (value) => (holds(value) ? value : undefined),
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
  `it must be a string of at most ${LONGEST} characters, a number, true or false`,
  isScalar,
);
const number = rule('it must be a number', Number.isFinite);
const name = rule(
  `it must be a string of 1 to ${LONGEST} characters`,
  (value) => isText(value) && value !== '',
);
const time: Rule = {
  says: 'it must be a time in ISO 8601',
  reads(value) {
    const read = typeof value === 'string' ? parseTime(value) : undefined;
    return read === undefined ? undefined : toIso(read);
  },
};

const compared: Record<string, Rule> = {
  equals: scalar,
  in: rule(
    `it must be an array of 1 to ${MOST_VALUES} strings, numbers, true or false`,
    (value) =>
      Array.isArray(value) && value.length > 0 && value.length <= MOST_VALUES && value.every(isScalar),
  ),
  exists: rule('it must be true or false', (value) => typeof value === 'boolean'),
  contains: scalar,
  more_than: number,
  less_than: number,
  before: time,
  after: time,
  in_last_days: whole(1, MOST_DAYS),
};

const happened: Record<string, Rule> = {
  count_at_least: whole(0, MOST_COUNTED),
  count_at_most: whole(0, MOST_COUNTED),
  ...{ first_before: time, first_after: time, last_before: time, last_after: time },
  last_in_days: whole(1, MOST_DAYS),
};

const attributeNames: readonly string[] = [...textAttributes, ...timeAttributes];
const states = oneOf('subscribed', 'unsubscribed', 'opted_in');

/** Each kind of filter by the member that names it: the rule of that member, and the others that it may have. */
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
      `it must be the name of an attribute, or an array of 1 to ${DEEPEST_ATTRIBUTE} names that leads into it`,
      (value) => {
        const path = Array.isArray(value) ? value : [value];
        return (
          path.length > 0 &&
          path.length <= DEEPEST_ATTRIBUTE &&
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
 * Judges a filter: `{"all": […]}`, `{"any": […]}`, `{"none": […]}` of filters, or one of the leaves above. `{"all": []}` is
 * everyone.
 *
 * @returns it, with its times in UTC
 * @throws {InvalidDefinition} naming the place, the member and the rule
 */
export function readDefinition(given: Json): Definition {
  let count = 0;
  return read(given, 'definition', 1);

  function read(filter: Json, place: string, depth: number): Definition {
    if (++count > MOST_FILTERS)
      throw new InvalidDefinition(`${place}: there are more than ${MOST_FILTERS} filters`);
    if (!isObject(filter)) throw new InvalidDefinition(`${place}: a filter is an object`);
    const group = groups.find((word) => word in filter);
    if (group !== undefined) {
      alone(filter, [group], place);
      const members = filter[group]!;
      if (!Array.isArray(members))
        throw new InvalidDefinition(`${place}.${group}: it must be an array of filters`);
      if (depth > DEEPEST)
        throw new InvalidDefinition(`${place}: filters are nested more than ${DEEPEST} deep`);
      return {
        [group]: members.map((member, index) => read(member, `${place}.${group}[${index}]`, depth + 1)),
      } as Definition;
    }
    return readLeaf(filter, place);
  }
}

function readLeaf(filter: Object_, place: string): Definition {
  const kind = Object.keys(kinds).find((word) => word in filter);
  if (kind === undefined)
    throw new InvalidDefinition(
      `${place}: a filter has one of ${[...groups, ...Object.keys(kinds)].join(', ')}`,
    );
  const { own, may, must = [], some = false } = kinds[kind]!;
  alone(filter, [kind, ...Object.keys(may)], place);
  for (const word of must)
    if (!(word in filter)) throw new InvalidDefinition(`${place}: '${word}' is required with '${kind}'`);
  if (some && Object.keys(filter).length === 1)
    throw new InvalidDefinition(`${place}: '${kind}' requires one of ${Object.keys(may).join(', ')}`);
  const leaf = Object.fromEntries(
    Object.entries(filter).map(([word, value]) => {
      const { says, reads } = word === kind ? own : may[word]!;
      const judged = filter.attribute === 'email' && word !== kind ? lowered(reads(value)) : reads(value);
      if (judged === undefined) throw new InvalidDefinition(`${place}.${word} is not valid: ${says}`);
      return [word, judged];
    }),
  );
  return leaf as Definition;
}

/** Addresses are stored in lower case. */
function lowered(value: Json | undefined): Json | undefined {
  if (typeof value === 'string') return value.toLowerCase();
  return Array.isArray(value) ? value.map((one) => lowered(one)!) : value;
}

function alone(filter: Object_, allowed: string[], place: string): void {
  for (const word of Object.keys(filter))
    if (!allowed.includes(word))
      throw new InvalidDefinition(`${place}: '${word.slice(0, 60)}' cannot be used with '${allowed[0]}'`);
}

/** Standard attributes that tell nobody who a user is. */
const NAMELESS: readonly string[] = ['country', 'language', 'time_zone', ...timeAttributes];

/** Whether a filter asks for what tells who somebody is: its words quote it, and a count would confirm it. */
export function asksWho(definition: Definition): boolean {
  for (const group of groups) {
    const members = (definition as unknown as Record<string, Definition[] | undefined>)[group];
    if (members) return members.some(asksWho);
  }
  if ('attribute' in definition) return !NAMELESS.includes(definition.attribute);
  return 'custom_attribute' in definition;
}

const joined = { all: ' and ', any: ' or ', none: ' or ' } as const;

/** The filter in words for a person. */
export function describe(definition: Definition): string {
  const filter = definition as unknown as Object_;
  for (const group of groups) {
    if (!(group in filter)) continue;
    const members = (filter[group] as unknown as Definition[]).map(describe);
    if (members.length === 0) return group === 'any' ? 'nobody' : 'everyone';
    const text = members.join(joined[group]);
    return group === 'none' ? `not (${text})` : members.length === 1 ? text : `(${text})`;
  }
  // Postgres keeps the members of an object in an order of its own.
  const kind = Object.keys(kinds).find((word) => word in filter) ?? '';
  const subject = filter[kind];
  const about = `${kind.replaceAll('_', ' ')} ${Array.isArray(subject) ? subject.join('.') : String(subject)}`;
  const words = Object.keys(kinds[kind]?.may ?? {})
    .filter((word) => word in filter)
    .map((word) => `${word.replaceAll('_', ' ')} ${JSON.stringify(filter[word])}`);
  return [kind === 'any_purchase' ? 'any purchase' : about, ...words].join(' ');
}
