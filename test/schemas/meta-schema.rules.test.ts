import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, test } from 'vitest';
import { fenceSchema, objectSchemas, requestSchema } from '../../src/jobs/catalog.ts';
import { allOperations } from '../../src/operations/index.ts';
import { createBody } from '../../src/operations/preference-center/schemas.ts';
import { compile } from '../../src/schemas/compile.ts';
import { attributesSchema, eventSchema, purchaseSchema } from '../../src/schemas/track.ts';

const ajv = new Ajv2020();

const bodies = allOperations('service_id').flatMap(({ id, body, query, replies }) => [
  [`the body of ${id}`, body],
  [`the query of ${id}`, query],
  ...Object.entries(replies).map(([status, { schema }]) => [`the answer ${status} of ${id}`, schema]),
]) as [string, object | undefined][];
const tracked = Object.entries({ attributesSchema, eventSchema, purchaseSchema });

const schemas = [
  ...bodies.filter(([, schema]) => schema),
  ['the whole body of preference_center.create', createBody],
  ...tracked.map(([name, schema]) => [name, schema('service_id')]),
  ...Object.entries({ requestSchema, fenceSchema, ...objectSchemas }),
] as [string, object][];

/** Validation that src/schemas/compile.ts omits at every start. */
test.each(schemas)('%s is a JSON Schema', (_, schema) => {
  expect(ajv.validateSchema(schema), JSON.stringify(ajv.errors)).toBe(true);
});

/** Compilation that a process does when a schema meets its first value. */
test.each(schemas.filter(([name]) => !name.startsWith('the answer')))('%s compiles', (_, schema) => {
  expect(compile(schema)({})).toBeTypeOf('boolean');
});

test('a schema that Ajv rejects fails at its first value', () => {
  expect(() => compile({ type: 'object', required: 'name' })({})).toThrow('required');
});

test('an invalid schema is recognized', () => {
  expect(ajv.validateSchema({ type: 'objekt' })).toBe(false);
});
