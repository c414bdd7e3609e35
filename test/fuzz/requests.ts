import fc from 'fast-check';
import type { OpenApiDocument } from '../../src/edge/openapi.ts';
import { type DocumentedSchema, fromSchema } from './from-schema.ts';
import { hostileText } from './hostile.ts';
import { anyLoad, type Load, wrapping } from './loads.ts';
import { mutated } from './mutated.ts';
import { rawBytes } from './raw-bytes.ts';
import { writeJson } from './raw-json.ts';

/** Bytes for a connection. */
export interface Shot {
  /** Operation at which the request is aimed, or another kind of request. */
  aim: string;
  bytes: Buffer;
  /** The connection cannot be reused, because the other side cannot know where the request ends. */
  alone: boolean;
}

/** Credentials for requests. */
export interface Doors {
  key: string;
  scimToken: string;
  scimOrigin: string;
  /** The token of a link to a preference center. */
  link?: string;
}

interface Parameter {
  name: string;
  in: 'path' | 'query' | 'header';
  schema: DocumentedSchema;
  example?: string;
}

interface Documented {
  operationId: string;
  parameters?: Parameter[];
  security?: Record<string, unknown>[];
  requestBody?: { content: Record<string, { schema: DocumentedSchema; example?: unknown }> };
}

const METHODS = [
  'GET',
  'HEAD',
  'POST',
  'PUT',
  'PATCH',
  'DELETE',
  'OPTIONS',
  'TRACE',
  'PROPFIND',
  'get',
  'QUERY',
];

/** Paths other than the ones of operations. */
const PATHS = [
  '/',
  '/docs',
  '/docs/guides/api',
  '/docs/guides/%2e%2e%2fpackage.json',
  '/docs/search?q[]=a&q[b]=c',
  '/docs/calculator?queue[]=a&objects_per_second[b]=c',
  '/docs/%2e%2e/package.json',
  '/openapi.json',
  '/healthz',
  '/readyz',
  '/metrics',
  '/scim/v2/Me',
  '/scim/v2/Bulk',
  '/SCIM/V2/users/',
  '//users/track',
  '/users/track/',
  '/%',
  '/%00',
  '/%ff',
  '/users/%E0%A4%A',
  '*',
  'http://other.example/users/track',
  '/__proto__',
  '/constructor',
  '/preferences/x',
];

/** Generates any bytes that a client can send, aimed at the operations of the document. */
export function shots(document: OpenApiDocument, doors: Doors): fc.Arbitrary<Shot> {
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) =>
      atOperation(path, method.toUpperCase(), described as unknown as Documented, doors),
    ),
  );
  const paths = [...Object.keys(document.paths), ...PATHS, ...(doors.link ? [doors.link] : [])];
  return fc.oneof(
    { weight: 16, arbitrary: fc.oneof(...operations) },
    { weight: 2, arbitrary: anywhere(paths, doors) },
    { weight: 1, arbitrary: rawBytes(doors) },
  );
}

function atOperation(path: string, method: string, documented: Documented, doors: Doors): fc.Arbitrary<Shot> {
  const { operationId, parameters = [], requestBody, security } = documented;
  const scim = security?.some((one) => 'scimToken' in one) ?? false;
  const inPath = parameters.filter((one) => one.in === 'path');
  const inQuery = parameters.filter((one) => one.in === 'query');
  return fc
    .tuple(
      fc.tuple(...inPath.map(({ example = 'example' }) => mostly(fc.constant(example), hostileText))),
      queryOf(inQuery),
      requestBody
        ? bodyOf(requestBody)
        : mostly(fc.constant<Load>({ bytes: Buffer.alloc(0), headers: [] }), anyLoad),
      entry(doors, scim),
      strangeHeaders,
    )
    .map(([values, query, load, admission, strange]) => {
      let target = path;
      inPath.forEach(({ name }, index) => {
        target = target.replace(`{${name}}`, () => encoded(values[index] as string));
      });
      return shot(operationId, method, target + query, [...admission, ...strange], load);
    });
}

function mostly<T>(usual: fc.Arbitrary<T>, other: fc.Arbitrary<T>): fc.Arbitrary<T> {
  return fc.oneof({ weight: 3, arbitrary: usual }, { weight: 1, arbitrary: other });
}

/** Percent-encodes a text; a lone surrogate is encoded as by a careless client. */
function encoded(text: string): string {
  return encodeURIComponent(text.toWellFormed()).slice(0, 3000);
}

function queryOf(parameters: Parameter[]): fc.Arbitrary<string> {
  const identifiers = fc.tuple(
    ...parameters.map(({ name, schema, example }) =>
      fc.option(
        fc
          .oneof(fc.constant(example ?? 'example'), fromSchema(schema), hostileText)
          .map((value) => [value].flat().map((one) => `${name}=${encoded(textOf(one))}`)),
        { nil: [] as string[], freq: 4 },
      ),
    ),
  );
  const wild = fc.array(
    fc.tuple(fc.oneof(hostileText, fc.constantFrom('limit[]', 'offset', 'a[b][c]', 'filter')), hostileText),
    { maxLength: 2 },
  );
  const end = mostly(
    fc.constant(''),
    fc.constantFrom('&', '&&=&', '&%', '&%zz=%', `&${'a[]=&'.repeat(500)}`),
  );
  return fc
    .tuple(identifiers, mostly(fc.constant<[string, string][]>([]), wild), end)
    .map(([given, others, last]) => {
      const pairs = [...given.flat(), ...others.map(([name, value]) => `${encoded(name)}=${encoded(value)}`)];
      return pairs.length === 0 && last === '' ? '' : `?${pairs.join('&')}${last}`;
    });
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : writeJson(value);
}

function bodyOf({ content }: NonNullable<Documented['requestBody']>): fc.Arbitrary<Load> {
  return fc
    .constantFrom(...Object.entries(content))
    .chain(([type, { schema, example }]) =>
      fc.tuple(fc.constant(type), mostly(mutated(example ?? {}), fromSchema(schema)), wrapping),
    )
    .map(([type, value, wrap]) => wrap(Buffer.from(writeJson(value)), type));
}

function entry({ key, scimToken, scimOrigin }: Doors, scim: boolean): fc.Arbitrary<string[]> {
  const good = scim
    ? [`Authorization: Bearer ${scimToken}`, `X-Request-Origin: ${scimOrigin}`]
    : [`Authorization: Bearer ${key}`];
  return fc.oneof(
    { weight: 12, arbitrary: fc.constant(good) },
    {
      weight: 1,
      arbitrary: fc.constantFrom<string[]>(
        [],
        ['Authorization: Bearer'],
        ['Authorization: Bearer  '],
        [`Authorization: Basic ${key}`],
        [`Authorization: Bearer ${key}x`],
        [`Authorization: Bearer ${'x'.repeat(5000)}`],
        ['Authorization: Bearer __proto__'],
        // The credential of the other kind of endpoint.
        [`Authorization: Bearer ${scim ? key : scimToken}`],
        [`Authorization: Bearer ${scimToken}`, 'X-Request-Origin: \u00ff'],
      ),
    },
  );
}

const strangeHeaders: fc.Arbitrary<string[]> = fc.oneof(
  { weight: 5, arbitrary: fc.constant<string[]>([]) },
  {
    weight: 1,
    arbitrary: fc.subarray([
      'Idempotency-Key: ',
      'Idempotency-Key: __proto__',
      `Idempotency-Key: ${'k'.repeat(1000)}`,
      'X-Request-Id: {{7*7}}',
      'X-Forwarded-For: 1.2.3.4, , ::1, nonsense',
      'Forwarded: for="[::',
      'If-Match: "',
      'If-None-Match: *',
      'If-Match: W/"1", W/"2"',
      'Expect: 100-continue',
      'Expect: nonsense',
      'Accept: */*;q=__proto__',
      'Range: bytes=0-,-1,5-2',
      'Cookie: a=b; __proto__=c',
      'Accept-Encoding: gzip, br',
      'Transfer-Encoding-: x',
      'X-Http-Method-Override: DELETE',
      `X-Long: ${'h'.repeat(8000)}`,
      ...Array.from({ length: 3 }, (_, index) => `Many-${index}: ${'\t'.repeat(index)}v`),
    ]),
  },
);

function anywhere(paths: string[], doors: Doors): fc.Arbitrary<Shot> {
  return fc
    .tuple(
      fc.constantFrom(...METHODS),
      fc.constantFrom(...paths),
      queryOf([]),
      fc.boolean().chain((scim) => entry(doors, scim)),
      strangeHeaders,
      fc.oneof(fc.constant<Load>({ bytes: Buffer.alloc(0), headers: [] }), anyLoad),
    )
    .map(([method, path, query, admission, strange, load]) => ({
      ...shot(`${method} anywhere`, method, path + query, [...admission, ...strange], load),
      // The answer to HEAD has a length and no body, and not every method is one.
      alone: true,
    }));
}

function shot(aim: string, method: string, target: string, headers: string[], load: Load): Shot {
  const { bytes, chunked, cut, alone = false } = load;
  const hasBody = bytes.length > 0 || load.headers.length > 0;
  const length = chunked
    ? ['Transfer-Encoding: chunked']
    : hasBody
      ? [`Content-Length: ${bytes.length + (cut ? 10 : 0)}`]
      : [];
  const head = [`${method} ${target} HTTP/1.1`, 'Host: localhost', ...headers, ...load.headers, ...length];
  const parts: Buffer[] = [Buffer.from(`${head.join('\r\n')}\r\n\r\n`, 'latin1')];
  if (!chunked) parts.push(bytes);
  else {
    for (let from = 0; from < bytes.length; from += 1000) {
      const chunk = bytes.subarray(from, from + 1000);
      parts.push(Buffer.from(`${chunk.length.toString(16)};x=y\r\n`), chunk, Buffer.from('\r\n'));
    }
    parts.push(Buffer.from('0\r\n\r\n'));
  }
  return { aim, bytes: Buffer.concat(parts), alone };
}
