import fc from 'fast-check';
import { hostileText, hostileValue } from './hostile.ts';

/** A JSON Schema in the form of the OpenAPI document. */
export interface DocumentedSchema {
  type?: string | string[];
  properties?: Record<string, DocumentedSchema>;
  items?: DocumentedSchema;
  enum?: unknown[];
  const?: unknown;
  anyOf?: DocumentedSchema[];
  oneOf?: DocumentedSchema[];
  allOf?: DocumentedSchema[];
  [member: string]: unknown;
}

/** Generates values that mostly match the schema, and sometimes have another value in any place. */
export function fromSchema(schema: DocumentedSchema, depth = 0): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 8, arbitrary: fitting(schema, depth) }, { weight: 1, arbitrary: hostileValue });
}

function fitting(schema: DocumentedSchema, depth: number): fc.Arbitrary<unknown> {
  const choices = schema.anyOf ?? schema.oneOf;
  if (choices) return fc.oneof(...choices.map((one) => fromSchema(one, depth)));
  if (schema.enum) return fc.constantFrom(...schema.enum);
  if (schema.const !== undefined) return fc.constant(schema.const);
  const [type] = [schema.type ?? (schema.properties ? 'object' : undefined)].flat();
  switch (type) {
    case 'object':
      return objectFrom(schema, depth);
    case 'array':
      return fc.array(fromSchema(schema.items ?? {}, depth + 1), { maxLength: depth === 0 ? 60 : 4 });
    case 'string':
      return fc.oneof(hostileText, fc.string({ maxLength: 20 }), examplesOf(schema));
    case 'integer':
      return fc.integer();
    case 'number':
      return fc.double({ noNaN: true });
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    default:
      return hostileValue;
  }
}

function examplesOf(schema: DocumentedSchema): fc.Arbitrary<unknown> {
  const examples = (schema.examples as unknown[] | undefined) ?? ['example'];
  return fc.constantFrom(...examples);
}

function objectFrom({ properties = {} }: DocumentedSchema, depth: number): fc.Arbitrary<unknown> {
  const members = Object.entries(properties).map(
    ([name, schema]) => [name, depth > 6 ? hostileValue : fromSchema(schema, depth + 1)] as const,
  );
  const others = fc.array(fc.tuple(hostileText, hostileValue), { maxLength: 2 });
  return fc
    .tuple(fc.record(Object.fromEntries(members), { requiredKeys: [] }), others)
    .map(([record, extra]) => Object.fromEntries([...Object.entries(record), ...extra]));
}
