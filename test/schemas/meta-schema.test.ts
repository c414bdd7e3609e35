import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, test } from 'vitest';
import { fenceSchema, objectSchemas, requestSchema } from '../../src/jobs/catalog.ts';
import { allOperations } from '../../src/operations/index.ts';
import { createBody } from '../../src/operations/preference-center/schemas.ts';
import { attributesSchema, eventSchema, purchaseSchema } from '../../src/schemas/track.ts';

const ajv = new Ajv2020();

const bodies = allOperations('service_id').flatMap(({ id, body, query, replies }) => [
  [`the body of ${id}`, body],
  [`the query of ${id}`, query],
  ...Object.entries(replies).map(([status, { schema }]) => [`the answer ${status} of ${id}`, schema]),
]) as [string, object | undefined][];
const tracked = Object.entries({ attributesSchema, eventSchema, purchaseSchema });

/** What src/schemas/compile.ts leaves out at every start. */
test.each([
  ...bodies.filter(([, schema]) => schema),
  ['the whole body of preference_center.create', createBody],
  ...tracked.map(([name, schema]) => [name, schema('service_id')]),
  ...Object.entries({ requestSchema, fenceSchema, ...objectSchemas }),
] as [string, object][])('%s is a JSON Schema', (_, schema) => {
  expect(ajv.validateSchema(schema), JSON.stringify(ajv.errors)).toBe(true);
});

test('a schema that is none is told from one', () => {
  expect(ajv.validateSchema({ type: 'objekt' })).toBe(false);
});
