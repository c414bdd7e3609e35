import { NAMED_ATTRIBUTES } from '../profile/attributes.ts';
import { type Json, parsedJson, parsedOrText } from '../profile/json.ts';
import { columnNames } from '../profile/standard-columns.ts';
import { asRecord, isRecord, numberOf, put } from '../profile/values.ts';
import type { Layout, Refusal, Values } from './reader.ts';
import { ImportError } from './unpack.ts';

/** Kinds of objects that the rows of a file contain. */
export const types = ['users', 'events', 'purchases', 'subscriptions'] as const;
export type ImportType = (typeof types)[number];

/** How the text of a column is parsed. `auto` chooses by its appearance. */
const readings = ['auto', 'text', 'number', 'boolean', 'json'] as const;
type Reading = (typeof readings)[number];

/** One `--map` entry: a field of the API and the column that it is read from. */
export interface Mapped {
  field: string;
  column: string;
  reading: Reading | undefined;
}

/** Parses the value of `--map`, for example `external_id=Customer,zip=Zip:text`. @throws {ImportError} */
export function parseMap(text: string): Mapped[] {
  return text.split(',').map((entry) => {
    const at = entry.indexOf('=');
    const field = entry.slice(0, at).trim();
    const right = entry.slice(at + 1).trim();
    if (at < 1 || field === '' || right === '')
      throw new ImportError(
        `--map: '${entry}' is not a mapping; write field=column or field=column:reading, for example external_id=Customer`,
      );
    const colon = right.lastIndexOf(':');
    const reading = readings.find((one) => one === right.slice(colon + 1));
    return colon > 0 && reading
      ? { field, column: right.slice(0, colon), reading }
      : { field, column: right, reading: undefined };
  });
}

export interface MappingRules {
  type: ImportType;
  map: readonly Mapped[];
  /** Columns that are omitted. */
  ignore: readonly string[];
  /**
   * Layout of the file. CSV values are texts that are parsed by their appearance; an empty value counts as
   * absent.
   */
  layout: Layout;
  /** Name of the service id in the API. */
  serviceIdField: string;
}

/** Converts a row to an object as a caller of the API would send it. */
type Mapping = (values: Values) => { object: Values } | Refusal;

/** The field that one column maps to. */
interface Route {
  column: string;
  /** The field as a user writes it in `--map`. */
  field: string;
  path: string[];
  reading: Reading;
}

const ALIAS = ['alias_name', 'alias_label'];

/** Fields that can identify a user. */
const identifiers = (serviceIdField: string) => [
  'external_id',
  'user_alias',
  serviceIdField,
  'email',
  'phone',
];

/** Other members of an event or a purchase. Every further column becomes a property. */
const members: Record<'events' | 'purchases', string[]> = {
  events: ['name', 'time', 'app_id', 'properties', '_update_existing_only'],
  purchases: [
    'product_id',
    'currency',
    'price',
    'quantity',
    'time',
    'app_id',
    'properties',
    '_update_existing_only',
  ],
};

/** Fields that are always texts, whatever they look like. */
const texts = new Set([
  ...[
    'external_id',
    'alias_name',
    'alias_label',
    ...columnNames(({ type }) => type === 'text' || type === 'time'),
  ],
  ...[
    'email_subscribe',
    'push_subscribe',
    'name',
    'time',
    'app_id',
    'product_id',
    'currency',
    'subscription_group_id',
    'subscription_state',
    'price',
    'quantity',
  ],
]);

/** Fields whose values are parsed as JSON. */
const structures = new Set([
  ...[
    'user_alias',
    'properties',
    'push_tokens',
    'subscription_groups',
    'current_location',
    ...columnNames(({ type }) => type === 'json'),
  ],
]);

/**
 * Creates the function that converts rows to objects of the API.
 *
 * @param columns columns of the header, if there is one. Missing columns are then reported at once
 * @throws {ImportError} if a named column does not exist, two columns map to one field, or no column
 * identifies a user
 */
export function createMapping(rules: MappingRules, columns: readonly string[] | undefined, name: string) {
  const { layout, map, ignore } = rules;
  // An NDJSON object already has the form of the API.
  if (layout === 'ndjson' && map.length === 0 && ignore.length === 0)
    return { mapping: ((object) => ({ object })) as Mapping, routes: undefined, warnings: [] };
  const routes = columns?.flatMap((column) => routeOf(column, rules) ?? []);
  if (columns && routes) check(rules, { columns, routes, name });
  const routesByColumn = new Map(routes?.map((route) => [route.column, route]));
  // Rows of objects may have any number of different names. Only the first 2,000 are cached.
  const routeFor = (column: string): Route | undefined => {
    let route = routesByColumn.get(column);
    if (!route && routesByColumn.size < 2000) {
      route = routeOf(column, rules);
      if (route) routesByColumn.set(column, route);
    }
    return route ?? (columns ? undefined : routeOf(column, rules));
  };

  const mapping: Mapping = (values) => {
    const object: Values = {};
    const own = new Map<string, Values>();
    for (const column in values) {
      const route = routeFor(column);
      if (!route) continue;
      let value: Json = values[column] ?? null;
      if (layout === 'csv' || route.reading !== 'auto') {
        if (value === '' || value === null) continue;
        const read = readText(value, route.reading);
        if (read === undefined)
          return {
            field: route.field,
            refused: `'${route.field}' is not valid: '${shown(value)}' in the column ${column} is not of the type ${route.reading}${remedies[route.reading] ?? ''}`,
          };
        value = read;
      }
      if (route.path.length === 1) {
        own.delete(route.path[0]!);
        object[route.path[0]!] = joined(object[route.path[0]!], value);
      } else {
        const [outer, inner] = route.path as [string, string];
        // Create one object per row and outer field, whatever the number of its members, and leave the object
        // of the row itself unchanged.
        let members = own.get(outer);
        if (!members) {
          const there = object[outer];
          members = { ...(isRecord(there) && there) };
          own.set(outer, members);
          object[outer] = members;
        }
        put(members, inner, value);
      }
    }
    return { object };
  };
  return { mapping, routes, warnings: routes ? caseWarnings(rules, routes) : [] };
}

/** Returns the lower-case names of the API fields of a type. */
function fieldsOf({ type, serviceIdField }: MappingRules): readonly string[] {
  const named = [...ALIAS, ...identifiers(serviceIdField)];
  if (type === 'users') return [...named, ...NAMED_ATTRIBUTES];
  return [
    ...named,
    ...(type === 'subscriptions' ? [...required.subscriptions, 'email_subscribe'] : members[type]),
  ];
}

/**
 * Returns a warning, with the fix, for each column that is not an API field only because of upper-case
 * letters.
 */
function caseWarnings(rules: MappingRules, routes: readonly Route[]): string[] {
  const fields = new Set(fieldsOf(rules));
  const taken = new Set(routes.map(({ path }) => path.at(-1)!));
  const becomes = rules.type === 'users' ? 'custom attribute' : 'property';
  return routes.flatMap(({ column, path }) => {
    const name = path.at(-1)!;
    const field = name.toLowerCase();
    if (name === field || !fields.has(field) || taken.has(field)) return [];
    return `the column ${column} becomes the ${becomes} ${name}, since names of fields are in lower case; if it is the field ${field}, use --map ${field}=${column}`;
  });
}

/** Merges the column of a field with the columns of its members. */
function joined(there: Json | undefined, value: Json): Json {
  const members = asRecord(value);
  return there !== undefined && isRecord(there) && members ? { ...there, ...members } : value;
}

function routeOf(column: string, rules: MappingRules): Route | undefined {
  if (rules.ignore.includes(column)) return undefined;
  const mapped = rules.map.find((one) => one.column === column);
  // A column whose name is the target of another column is ignored.
  if (!mapped && rules.map.some(({ field }) => field === column)) return undefined;
  const field = mapped?.field ?? column;
  const path = pathOf(field, rules);
  return { column, field, path, reading: mapped?.reading ?? readingOf(path, rules) };
}

function pathOf(field: string, { type, layout, serviceIdField }: MappingRules): string[] {
  const at = field.indexOf('.');
  const isFlat = layout !== 'ndjson';
  const outer = field.slice(0, at);
  if (outer === 'user_alias') return [outer, field.slice(at + 1)];
  if (isFlat && ALIAS.includes(field)) return ['user_alias', field];
  if (type === 'users' || type === 'subscriptions') return [field];
  if (outer === 'properties') return [outer, field.slice(at + 1)];
  const isMember = members[type].includes(field) || identifiers(serviceIdField).includes(field);
  // NDJSON objects have their properties in a member of their own.
  return isMember || !isFlat ? [field] : ['properties', field];
}

function readingOf(path: string[], { type, layout, serviceIdField }: MappingRules): Reading {
  const [outer, inner] = path;
  if (layout === 'ndjson' || (outer === 'properties' && inner !== undefined)) return 'auto';
  if (outer === serviceIdField || inner !== undefined) return 'text';
  if (structures.has(outer!)) return 'json';
  if (layout === 'parquet' || layout === 'avro') return 'auto';
  const isText = texts.has(outer!) && (type !== 'users' || !onlyOfActivities.has(outer!));
  return isText ? 'text' : 'auto';
}

/** Fields of activities that are custom attributes, of any type, for users. */
const onlyOfActivities = new Set([
  ...['name', 'time', 'app_id', 'product_id', 'currency', 'subscription_group_id', 'subscription_state'],
  ...['price', 'quantity'],
]);

const NUMBER = /^-?(?:0|[1-9]\d{0,14})(?:\.\d{1,15})?$/;
/** Significant digits that a double preserves for any number. */
const MAX_DIGITS = 15;

/** How to write a value so that it can be parsed, by type. */
const remedies: Partial<Record<Reading, string>> = {
  number: ': write it as 12.5 or 1e3, up to 9007199254740991, or read the column as text',
  boolean: ': write true, false, 1 or 0',
  json: ': write it as JSON, or read the column as text',
};

/** @returns undefined if the text is not a value of the type */
function readText(value: Json, reading: Reading): Json | undefined {
  if (typeof value !== 'string')
    return reading === 'text' && typeof value === 'number' ? String(value) : value;
  switch (reading) {
    case 'text':
      return value;
    case 'number':
      return numberOf(value);
    case 'boolean':
      return /^(true|false|1|0)$/i.test(value) ? /^(true|1)$/i.test(value) : undefined;
    case 'json':
      return parsedJson(value);
    case 'auto':
      return parseByAppearance(value);
  }
}

/**
 * Parses a number that a double stores with all its digits, true, false, an array or an object. Other values
 * stay text.
 */
function parseByAppearance(value: string): Json {
  const first = value.charCodeAt(0);
  if (first === 0x5b || first === 0x7b) return parsedOrText(value);
  if (
    (first === 0x2d || (first >= 0x30 && first <= 0x39)) &&
    NUMBER.test(value) &&
    significantDigits(value) <= MAX_DIGITS
  )
    return Number(value);
  if (value.length > 5) return value;
  const word = value.toLowerCase();
  return word === 'true' ? true : word === 'false' ? false : value;
}

const significantDigits = (number: string) => number.replace(/[-.]/g, '').replace(/^0+/, '').length;

const shown = (value: Json) => String(value).slice(0, 50);

interface Header {
  columns: readonly string[];
  routes: readonly Route[];
  name: string;
}

function check({ type, map, ignore, serviceIdField }: MappingRules, { columns, routes, name }: Header): void {
  const listed = columns.slice(0, 50).join(', ');
  for (const column of [...map.map((one) => one.column), ...ignore])
    if (!columns.includes(column))
      throw new ImportError(`${name} has no column ${column}; the columns are ${listed}`);
  const fields = routes.map(({ path }) => path.join('.'));
  const duplicates = routes.filter((_, index) => fields.indexOf(fields[index]!) !== index);
  if (duplicates[0]) {
    const others = routes.filter(({ path }) => path.join('.') === duplicates[0]!.path.join('.'));
    const named = others.map(({ column }) => column).join(' and ');
    throw new ImportError(
      `${name}: the columns ${named} map to the same field ${duplicates[0].field}; ignore one of them with --ignore`,
    );
  }
  const naming = identifiers(serviceIdField);
  if (!routes.some(({ path }) => naming.includes(path[0]!)) && !fields.includes('push_tokens'))
    throw new ImportError(
      `${name} has no column with an identifier (${naming.join(', ')}); set one with --map external_id=COLUMN. The columns are ${listed}`,
    );
  for (const field of required[type])
    if (!fields.includes(field))
      throw new ImportError(
        `${name} has no column for '${field}', which is required for ${type}; set it with --map ${field}=COLUMN. The columns are ${listed}`,
      );
}

const required: Record<ImportType, string[]> = {
  users: [],
  events: ['name', 'time'],
  purchases: ['product_id', 'currency', 'price', 'time'],
  subscriptions: ['subscription_group_id', 'subscription_state'],
};
