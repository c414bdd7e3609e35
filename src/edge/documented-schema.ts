import { annotations } from '../schemas/compile.ts';
import type { Schema } from '../schemas/schema.ts';

/** A schema without our own annotations; a property may be called as one of them. */
export function documented(schema: Schema): Schema {
  const entries = Object.entries(schema).filter(([keyword]) => !annotations.includes(keyword));
  return Object.fromEntries(entries.map(([keyword, value]) => [keyword, documentedValue(keyword, value)]));
}

const OF_NAMES = new Set(['properties', 'patternProperties', '$defs']);
const OF_SCHEMAS = new Set(['anyOf', 'oneOf', 'allOf', 'prefixItems']);
const A_SCHEMA = new Set([
  'items',
  'additionalProperties',
  'propertyNames',
  'not',
  'if',
  'then',
  'else',
  'contains',
]);

function documentedValue(keyword: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (A_SCHEMA.has(keyword)) return documented(value as Schema);
  if (OF_SCHEMAS.has(keyword)) return (value as Schema[]).map(documented);
  if (!OF_NAMES.has(keyword)) return value;
  return Object.fromEntries(Object.entries(value).map(([name, schema]) => [name, documented(schema)]));
}
