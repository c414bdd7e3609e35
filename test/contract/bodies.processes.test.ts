import { gzipSync } from 'node:zlib';
import { v7 as uuidv7 } from 'uuid';
import { describe, expect, test } from 'vitest';
import { errors, explain } from '../../src/errors.ts';
import type { Operation } from '../../src/operations/operation.ts';
import { usersTrack } from '../../src/operations/users.track.ts';
import type { Json } from '../../src/profile/json.ts';
import type { Schema } from '../../src/schemas/compile.ts';
import { type ApiAnswer, type ApiRequest, exampleOf } from '../setup/api.ts';
import { acceptedStatuses, errorSchemaOf, expectError, expectFit } from './expected.ts';
import { contractScene, operations } from './scene.ts';

const withBody = operations.filter(({ body }) => body);

const codes = (Object.keys(errors) as (keyof typeof errors)[]).flatMap((name) => explain(name)?.code ?? []);

/** Exceeds the body limit, also as JSON. */
const FIVE_MEGABYTES = 5 * 1024 * 1024;

/** Small on the wire, and 100 MB when it is unpacked. */
const GZIP_BOMB = gzipSync(Buffer.alloc(100 * 1024 * 1024, ' '));

/** Elements that no array accepts, alone and combined. */
const ELEMENTS: Json[][] = [[], [null], [7], ['\u0000'], [[]], [{}], [{ a: '\ud800' }, {}], [true, 'x', {}]];

// Rejected requests never reach the queue, so one kind of queue is enough.
describe('bodies and errors of every operation', () => {
  const { accept, call, access, fleet, makeKey, staysPrivate } = contractScene('redis');

  describe('its body', () => {
    describe.each(withBody)('$id, which takes a body,', (operation) => {
      const status = expect.toBeOneOf(acceptedStatuses(operation));

      test.each(['{', '{"a":}', '"text', '{}{}', '\u0000', '{"a":1,}'])(
        'rejects malformed JSON: 400 for %j',
        async (raw) => {
          expectError(operation, await accept(operation, { raw }), 'malformedBody');
        },
      );

      test('rejects text that is not UTF-8: 400', async () => {
        const raw = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]);
        expectError(operation, await accept(operation, { raw }), 'malformedBody');
      });

      test.each(['[]', '[{}]', 'null', '"text"', '1'])(
        'rejects a body that is not an object: 400 for %s',
        async (raw) => {
          expectError(operation, await accept(operation, { raw }), 'bodyNotObject');
        },
      );

      test('rejects an empty body: 400', async () => {
        for (const raw of ['', '{}']) {
          const answer = await accept(operation, { raw });
          expect(answer.status).toBe(400);
          expectFit(errorSchemaOf(operation), answer.body);
        }
      });

      test.each(['text/plain', 'application/x-www-form-urlencoded', 'json'])(
        'rejects the content type %s: 415',
        async (type) => {
          const answer = await accept(operation, { headers: { 'content-type': type } });
          expectError(operation, answer, 'unsupportedMediaType');
          expect(answer.body.message ?? answer.body.detail).toBe(
            `Unsupported Media Type: Content-Type is '${type}'. Supported: application/json, application/scim+json`,
          );
        },
      );

      test('rejects a request without a content type: 415', async () => {
        const raw = Buffer.from(JSON.stringify(exampleOf(operation).json));
        const answer = await accept(operation, { raw, headers: { 'content-type': '' } });
        expectError(operation, answer, 'unsupportedMediaType');
      });

      test('reads a hostile content type as quickly as a valid one', async () => {
        const type = `application/json${' '.repeat(150)}x`;
        const answer = await accept(operation, { headers: { 'content-type': type } });
        expectError(operation, answer, 'unsupportedMediaType');
      });

      test('accepts JSON with any charset parameter, which has no effect', async () => {
        for (const charset of ['utf-8', '"UTF-8"', 'latin1', 'utf-16']) {
          const type = `application/json; charset=${charset}`;
          expect(await accept(operation, { headers: { 'content-type': type } })).toMatchObject({ status });
        }
      });

      test('rejects a body over 4 MB: 413', async () => {
        const { json } = await access().example(operation, fleet().workspace);
        const raw = JSON.stringify({
          ...(json as object),
          padding: ' '.repeat(FIVE_MEGABYTES),
        });
        expectError(operation, await accept(operation, { raw }), 'bodyTooLarge');
      });

      const { maxBytes = 4 * 1024 * 1024 } = operation;

      test(`accepts a body of just under ${maxBytes} bytes, and rejects a larger one: 413`, async () => {
        const { json } = await access().example(operation, fleet().workspace);
        const text = JSON.stringify(json);
        const padded = (bytes: number) => text + ' '.repeat(bytes - Buffer.byteLength(text));
        expect(await accept(operation, { raw: padded(maxBytes) })).toMatchObject({ status });
        const answer = await accept(operation, { raw: padded(maxBytes + 1) });
        expectError(operation, answer, 'bodyTooLarge');
        if (operation.auth !== 'scim')
          expect(answer.body.detail).toContain(`has ${maxBytes + 1} bytes; the limit is ${maxBytes} bytes`);
      });

      test('accepts a gzip body, also by the name x-gzip', async () => {
        for (const encoding of ['gzip', 'X-GZIP']) {
          const { json } = await access().example(operation, fleet().workspace);
          const raw = gzipSync(JSON.stringify(json));
          expect(await accept(operation, { raw, headers: { 'content-encoding': encoding } })).toMatchObject({
            status,
          });
        }
      });

      test('rejects a gzip body that unpacks to over 4 MB: 413', async () => {
        const answer = await accept(operation, { raw: GZIP_BOMB, headers: { 'content-encoding': 'gzip' } });
        expectError(operation, answer, 'bodyTooLarge');
      });

      test('rejects a broken gzip body with 400, and other encodings, also Brotli, with 415', async () => {
        const gzip = { 'content-encoding': 'gzip' };
        expectError(operation, await accept(operation, { raw: 'no gzip', headers: gzip }), 'malformedBody');
        for (const encoding of ['compress', 'br', 'gzip, br']) {
          const other = { 'content-encoding': encoding };
          expectError(operation, await accept(operation, { headers: other }), 'unsupportedMediaType');
        }
      });

      test.each(cappedArrays(operation))(
        'accepts at most $max $name: 400 for one more',
        async ({ name, max, item }) => {
          const { json } = await access().example(operation, fleet().workspace);
          const holding = (count: number) => ({
            json: {
              ...(json as Record<string, Json>),
              [name]: Array(count).fill(item),
            },
          });
          const { status: refused, body } = await accept(operation, holding(max + 1));
          expect(refused).toBe(400);
          const texts: string[] = (operation.refusals ?? []).map((entry) => errors[entry].message);
          const isOfRule =
            body.message?.startsWith(`'${name}' is not valid: `) && body.message.includes(`at most ${max} `);
          if (operation.refusals && !operation.auth && !isOfRule) expect(texts).toContain(body.message);
        },
      );
    });
  });

  describe('its errors', () => {
    describe.each(operations)('$id', (operation) => {
      test('have one shape in every rejected request', async () => {
        const answers: ApiAnswer[] = [];
        const refuse = async (change: ApiRequest) => answers.push(await accept(operation, change));
        const example = await access().example(operation, fleet().workspace);
        answers.push(await call(example));
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
          else
            expect(body).toMatchObject({
              message: expect.any(String),
              code: expect.toBeOneOf(codes),
              detail: expect.stringMatching(/^\S.+\.$/),
            });
          if ('errors' in body) expectOneShape(body.errors);
        }
        // Accepted requests name their invalid elements in the same way.
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
            type: "'dob' is not valid: it must be a date as YYYY-MM-DD; it was omitted",
            input_array: 'attributes',
            index: 0,
          },
          { type: "'name' was cut to 255 characters", input_array: 'events', index: 0 },
        ],
      };

      test('are next to the errors, in the documented shape', async () => {
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
  });

  staysPrivate();
});

/** Returns the arrays of a body that have a maximum, each with an element to repeat. */
function cappedArrays({ body, example }: Operation) {
  const properties = Object.entries((body?.properties ?? {}) as Record<string, Schema>);
  return properties.flatMap(([name, schema]) => {
    const max = schema.maxItems as number | undefined;
    // An array that must be empty has no element to repeat.
    if (!max) return [];
    const given = (example.body as Record<string, Json>)?.[name];
    return [{ name, max, item: (Array.isArray(given) && given[0]) || sampleOf(schema.items as Schema) }];
  });
}

function sampleOf({ type, required, properties }: Schema): Json {
  if (type !== 'object') return 'sample';
  const members = (required ?? []) as string[];
  return Object.fromEntries(
    members.map((name) => [name, sampleOf((properties as Record<string, Schema>)[name]!)]),
  );
}

/** Expects `{type, input_array, index}` for an invalid element, and `{type}` for the request as a whole. */
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

/**
 * Returns the example with one member wrong, and with invalid elements in one of its arrays, also next to a
 * valid one.
 */
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
