import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { usersTrack } from '../../src/operations/users.track.ts';
import type { Json } from '../../src/profile/json.ts';
import type { Schema } from '../../src/schemas/compile.ts';
import type { ApiAnswer, ApiRequest } from '../setup/api.ts';
import { acceptedStatuses, errorSchemaOf, expectFit } from './expected.ts';
import { contractScene, operations } from './scene.ts';

/** Elements that no array takes, alone and beside each other. */
const ELEMENTS: Json[][] = [[], [null], [7], ['\u0000'], [[]], [{}], [{ a: '\ud800' }, {}], [true, 'x', {}]];

// What is refused never comes to the queue, so one form of it will do.
describe('the errors of every operation', () => {
  const { accept, ask, access, fleet, makeKey, staysPrivate } = contractScene('postgres');

  describe.each(operations)('$id', (operation) => {
    test('have one shape in every request that it refuses', async () => {
      const answers: ApiAnswer[] = [];
      const refuse = async (change: ApiRequest) => answers.push(await accept(operation, change));
      const example = await access().example(operation, fleet().workspace);
      answers.push(await ask(example));
      if (operation.permission) await refuse({ key: await makeKey([]) });
      await refuse({ headers: { 'Idempotency-Key': 'two words' } });
      if (operation.body) {
        for (const raw of ['', '{', '[]', '{}']) await refuse({ raw });
        await refuse({ headers: { 'content-type': 'text/plain' } });
        for (const json of wrongBodies(operation.body, example.json as Record<string, Json>)) {
          await refuse({ json });
        }
      }
      if (operation.query) {
        const [path] = example.path!.split('?');
        for (const query of ['', '?limit=x&filter=x&cursor=!', '?email=x&phone=x']) {
          await refuse({ path: `${path}${query}` });
        }
      }
      const refused = answers.filter(({ status }) => status >= 400);
      expect(refused.length).toBeGreaterThan(0);
      for (const { status, body } of refused) {
        expectFit(errorSchemaOf(operation), body);
        if (operation.auth === 'scim') expect(body).toMatchObject({ status, detail: expect.any(String) });
        else expect(body.message).toBeTypeOf('string');
        if ('errors' in body) expectOneShape(body.errors);
      }
      // What is accepted names its elements in the same way.
      for (const { body } of answers.filter(({ status }) => acceptedStatuses(operation).includes(status))) {
        for (const list of ['errors', 'warnings', 'rename_errors', 'removal_errors']) {
          if (body?.[list]?.length > 0) expectOneShape(body[list]);
        }
      }
    });
  });

  describe('warnings of an answer', () => {
    const operation = usersTrack('service_id');
    const json = {
      attributes: [
        { external_id: 'ada', dob: 'soon', n: 1 },
        { external_id: 'grace', n: 1 },
        { external_id: 'alan', email: 'none' },
      ],
      events: [{ external_id: 'ada', name: 'n'.repeat(300), time: '2026-01-31T12:00:00Z' }],
    };
    const body = {
      attributes_processed: 2,
      events_processed: 1,
      message: 'success',
      errors: [
        {
          type: "The value provided for the 'email' field is not a valid email.",
          input_array: 'attributes',
          index: 2,
        },
      ],
      warnings: [
        {
          type: "'dob' is not valid: it must be a date as YYYY-MM-DD; it was left out",
          input_array: 'attributes',
          index: 0,
        },
        { type: "'name' was cut to 255 characters", input_array: 'events', index: 0 },
      ],
    };

    test('stand beside the errors, in the documented shape', async () => {
      const answer = await accept(operation, { json });
      expect(answer).toMatchObject({ status: 201 });
      expect(answer.body).toEqual(body);
      expectFit(operation.replies[201]!.schema, answer.body);
      expectOneShape(answer.body.warnings);
    });

    test('are in every answer to the same Idempotency-Key', async () => {
      const headers = { 'Idempotency-Key': uuidv7() };
      for (let time = 0; time < 2; time++) {
        const answer = await accept(operation, { json, headers });
        expect({ status: answer.status, body: answer.body }).toEqual({ status: 201, body });
      }
    });
  });

  staysPrivate();
});

/** `{type, input_array, index}` of an element that is to blame; `{type}` where it is the request as a whole. */
function expectOneShape(errors: unknown): void {
  expect(errors).toBeInstanceOf(Array);
  expect(errors).not.toHaveLength(0);
  for (const error of errors as Record<string, unknown>[]) {
    expect(error).toEqual(
      Object.hasOwn(error, 'input_array')
        ? { type: expect.any(String), input_array: expect.any(String), index: expect.any(Number) }
        : { type: expect.any(String) },
    );
  }
}

/** The example with one member wrong, and with wrong elements in one of its arrays, beside a good one too. */
function wrongBodies(schema: Schema, example: Record<string, Json>): Json[] {
  const properties = Object.entries((schema.properties ?? {}) as Record<string, Schema>);
  return properties.flatMap(([name, { type, maxItems }]) => {
    const given = example[name];
    const [good] = Array.isArray(given) ? given : [];
    const of = (value: Json) => ({ ...example, [name]: value });
    if (type !== 'array') return [null, 7, {}, []].map(of);
    return [
      ...['text', 7, {}].map(of),
      ...ELEMENTS.flatMap((elements) => [of(elements), ...(good ? [of([good, ...elements])] : [])]),
      ...(maxItems === undefined ? [] : [of(Array((maxItems as number) + 1).fill(good ?? {}))]),
    ];
  });
}
