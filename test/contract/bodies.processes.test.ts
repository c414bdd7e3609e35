import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { errors } from '../../src/errors.ts';
import type { Operation } from '../../src/operations/operation.ts';
import type { Json } from '../../src/profile/json.ts';
import type { Schema } from '../../src/schemas/compile.ts';
import { exampleOf } from '../setup/api.ts';
import { acceptedStatuses, errorSchemaOf, expectError, expectFit } from './expected.ts';
import { contractScene, operations } from './scene.ts';

const withBody = operations.filter(({ body }) => body);

/** Longer than the body limit, also when it is JSON. */
const FIVE_MEGABYTES = 5 * 1024 * 1024;

/** Little on the wire, and 100 MB when it is unpacked. */
const GZIP_BOMB = gzipSync(Buffer.alloc(100 * 1024 * 1024, ' '));

// A body is read before anything of it comes to the queue, so one form of that will do.
describe('the body of every operation', () => {
  const { accept, access, fleet, staysPrivate } = contractScene('redis');

  describe.each(withBody)('$id, which takes a body,', (operation) => {
    const status = expect.toBeOneOf(acceptedStatuses(operation));

    test.each(['{', '{"a":}', '"text', '{}{}', '\u0000', '{"a":1,}'])(
      'refuses malformed JSON: 400 for %j',
      async (raw) => {
        expectError(operation, await accept(operation, { raw }), 'malformedBody');
      },
    );

    test('refuses text that is not UTF-8: 400', async () => {
      const raw = Buffer.concat([Buffer.from('{"a":"'), Buffer.from([0xff, 0xfe]), Buffer.from('"}')]);
      expectError(operation, await accept(operation, { raw }), 'malformedBody');
    });

    test.each(['[]', '[{}]', 'null', '"text"', '1'])(
      'refuses a body that is no object: 400 for %s',
      async (raw) => {
        expectError(operation, await accept(operation, { raw }), 'bodyNotObject');
      },
    );

    test('refuses an empty body: 400', async () => {
      for (const raw of ['', '{}']) {
        const answer = await accept(operation, { raw });
        expect(answer.status).toBe(400);
        expectFit(errorSchemaOf(operation), answer.body);
      }
    });

    test.each([
      'text/plain',
      'application/x-www-form-urlencoded',
      'application/json; charset=latin1',
      'json',
    ])('refuses the content type %s: 415', async (type) => {
      const answer = await accept(operation, { headers: { 'content-type': type } });
      expectError(operation, answer, 'unsupportedMediaType');
    });

    test('refuses a request without a content type: 415', async () => {
      const raw = Buffer.from(JSON.stringify(exampleOf(operation).json));
      const answer = await accept(operation, { raw, headers: { 'content-type': '' } });
      expectError(operation, answer, 'unsupportedMediaType');
    });

    test('reads a hostile content type as quickly as an honest one', async () => {
      const type = `application/json${'; '.repeat(80)};charset=x`;
      const answer = await accept(operation, { headers: { 'content-type': type } });
      expectError(operation, answer, 'unsupportedMediaType');
    });

    test('takes JSON with a charset', async () => {
      for (const type of ['application/json; charset=utf-8', 'application/json;charset=UTF-8']) {
        expect(await accept(operation, { headers: { 'content-type': type } })).toMatchObject({ status });
      }
    });

    test('refuses a body over 4 MB: 413', async () => {
      const { json } = await access().example(operation, fleet().workspace);
      const raw = JSON.stringify({
        ...(json as object),
        padding: ' '.repeat(FIVE_MEGABYTES),
      });
      expectError(operation, await accept(operation, { raw }), 'bodyTooLarge');
    });

    test('takes a body of just under 4 MB', async () => {
      const { json } = await access().example(operation, fleet().workspace);
      const raw = `${JSON.stringify(json)}${' '.repeat(4_000_000)}`;
      expect(await accept(operation, { raw })).toMatchObject({ status });
    });

    test('takes a gzip body', async () => {
      const { json } = await access().example(operation, fleet().workspace);
      const raw = gzipSync(JSON.stringify(json));
      expect(await accept(operation, { raw, headers: { 'content-encoding': 'gzip' } })).toMatchObject({
        status,
      });
    });

    test('refuses a gzip body over 4 MB when it is unpacked: 413', async () => {
      const answer = await accept(operation, { raw: GZIP_BOMB, headers: { 'content-encoding': 'gzip' } });
      expectError(operation, answer, 'bodyTooLarge');
    });

    test('refuses a broken gzip body: 400, and an encoding that is not read, Brotli among them: 415', async () => {
      const gzip = { 'content-encoding': 'gzip' };
      expectError(operation, await accept(operation, { raw: 'no gzip', headers: gzip }), 'malformedBody');
      for (const encoding of ['compress', 'br', 'gzip, br']) {
        const other = { 'content-encoding': encoding };
        expectError(operation, await accept(operation, { headers: other }), 'unsupportedMediaType');
      }
    });

    test.each(cappedArrays(operation))(
      'takes at most $max $name: 400 for one more',
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
        if (operation.refusals && !operation.auth) expect(texts).toContain(body.message);
      },
    );
  });

  staysPrivate();
});

/** The arrays of a body that have a cap, with something to fill them. */
function cappedArrays({ body, example }: Operation) {
  const properties = Object.entries((body?.properties ?? {}) as Record<string, Schema>);
  return properties.flatMap(([name, schema]) => {
    const max = schema.maxItems as number | undefined;
    if (max === undefined) return [];
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
