import { readFileSync } from 'node:fs';
import path from 'node:path';
import { Validator } from '@seriousme/openapi-schema-validator';
import { describe, expect, test } from 'vitest';
import { openApiDocument } from '../../src/edge/openapi.ts';
import { type ErrorName, errors, explain } from '../../src/errors.ts';
import { allOperations } from '../../src/operations/index.ts';
import type { Operation } from '../../src/operations/operation.ts';
import { settings } from '../../src/platform/config.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { annotations, compile, type Schema } from '../../src/schemas/compile.ts';
import { rulesOf } from '../../src/schemas/vendor-rules.ts';
import { acceptedStatus } from '../setup/api.ts';
import { sources } from '../setup/sources.ts';

const operations = allOperations(settings.SERVICE_ID_FIELD.default);
const document = openApiDocument(operations);

/** The operations at the level `current` of VENDOR_RULES, which has every operation of `spec`. */
const currentOperations = allOperations(settings.SERVICE_ID_FIELD.default, { rules: rulesOf.current });
const currentDocument = openApiDocument(currentOperations, { rules: rulesOf.current });

test('generated/openapi.json matches the operations; npm run generate writes it', () => {
  const committed = readFileSync(path.join(packageRoot, 'generated/openapi.json'), 'utf8');
  expect(committed).toBe(`${JSON.stringify(document, null, 2)}\n`);
});

test('the document is valid OpenAPI 3.1', async () => {
  const validator = new Validator();
  for (const one of [document, currentDocument])
    expect(await validator.validate(structuredClone(one))).toEqual({ valid: true });
  expect(validator.version).toBe('3.1');
});

test('the wire name of the service id is the configured one', () => {
  const text = JSON.stringify(openApiDocument(allOperations('braze_id')));
  expect(text).toContain('braze_id');
  expect(text).not.toContain('service_id');
});

test('an operation with a shared limit lists the other operations of the limit', () => {
  const [one, two] = [operations[0]!, { ...operations[0]!, id: 'users.twin', path: '/users/twin' }];
  const { paths } = openApiDocument([one, two]);
  expect(paths['/users/twin']!.post!.description).toMatch(
    /Limit: 50,000 requests per minute and workspace, shared with users\.track\.$/,
  );
});

test('path and query parameters are described', () => {
  const operation: Operation = {
    ...operations[1]!,
    kind: 'direct',
    handle: async () => ({ status: 200, body: {} }),
    id: 'things.read',
    method: 'GET',
    path: '/v2/things/:id',
    query: {
      type: 'object',
      required: ['state'],
      properties: { state: { type: 'string', rule: 'it must be a state' }, cursor: { type: 'string' } },
    },
    example: { params: { id: '7' }, query: { state: 'open' }, reply: {} },
  };
  const { get } = openApiDocument([operation]).paths['/v2/things/{id}']!;
  expect(get).toMatchObject({
    tags: ['things'],
    parameters: [
      { name: 'id', in: 'path', required: true, example: '7' },
      { name: 'state', in: 'query', required: true, example: 'open', schema: { type: 'string' } },
      { name: 'cursor', in: 'query', required: false },
    ],
  });
  expect(JSON.stringify(get)).not.toContain('it must be a state');
});

describe.each(operations)('$id', (operation) => {
  const described =
    document.paths[operation.path.replace(/:(\w+)/g, '{$1}')]![operation.method.toLowerCase()]!;
  const accepted = acceptedStatus(operation);

  test('is described under its id, with its permission and its limit', () => {
    expect(described.operationId).toBe(operation.id);
    expect(described.description).toContain(
      operation.auth === 'scim'
        ? 'A SCIM token. Limit: '
        : `Permission: ${operation.permission ? `\`${operation.permission}\`` : 'any API key of the workspace'}. Limit: `,
    );
  });

  test('has examples that fit their own schemas', () => {
    if (operation.body) expectFit(operation.body, operation.example.body);
    if (operation.query) expectFit(operation.query, operation.example.query);
    expectFit(operation.replies[accepted]!.schema, operation.example.reply);
  });

  test('documents every error that all operations can return, with its body', () => {
    const statuses = [
      401,
      ...(operation.auth ? [] : [403]),
      429,
      500,
      503,
      ...(operation.body ? [400, 408, 413, 415] : []),
      ...(operation.method === 'POST' ? [400, 422] : []),
    ];
    expect(Object.keys(described.responses)).toEqual(expect.arrayContaining(statuses.map(String)));
    for (const status of statuses) {
      const { content } = described.responses[status] as {
        content: Record<string, { schema: Schema; examples: Record<string, { value: unknown }> }>;
      };
      const { schema, examples } = content[operation.contentType ?? 'application/json']!;
      expect(Object.keys(examples)).not.toEqual([]);
      for (const { value } of Object.values(examples)) expectFit(schema, value);
    }
  });

  test('shows request id and limits on every answer, and Retry-After on 429 and 503', () => {
    for (const [status, response] of Object.entries(described.responses)) {
      expect(Object.keys((response as { headers: object }).headers)).toEqual([
        'X-Request-Id',
        'X-RateLimit-Limit',
        'X-RateLimit-Remaining',
        'X-RateLimit-Reset',
        ...(status === '429' || status === '503' ? ['Retry-After'] : []),
      ]);
    }
  });

  test('has an error schema if it has its own error format', () => {
    expect(operation.errorSchema !== undefined).toBe(operation.errorBody !== undefined);
  });

  test('keeps our own annotations out of its schemas', () => {
    const keywords = new Set<string>();
    JSON.stringify(described, (key, value) => {
      keywords.add(key);
      return value;
    });
    for (const annotation of annotations) expect(keywords).not.toContain(annotation);
  });
});

/**
 * Codes of errors without an operation: the request is refused before the operation is known, or they belong to
 * pages.
 */
const ofNoOperation: Record<number, string[]> = {
  400: ['malformed_request'],
  403: [],
  413: [],
  429: [],
  503: [],
};

describe.each(Object.keys(ofNoOperation).map(Number))('the codes of %s', (status) => {
  const ofStatus = (Object.keys(errors) as ErrorName[]).filter((name) => errors[name].status === status);
  const catalogue = ofStatus.flatMap((name) => explain(name)?.code ?? []);
  const documented = new Map(operations.map((operation) => [operation.id, codesOf(operation, status)]));

  test.each([...documented])('of %s are codes of the catalogue', (_id, codes) => {
    expect(codes.filter((code) => !catalogue.includes(code))).toEqual([]);
    expect(new Set(codes).size).toBe(codes.length);
  });

  test('are all documented by at least one operation', () => {
    const current = currentOperations.flatMap((operation) => codesOf(operation, status, currentDocument));
    const collected = new Set([...documented.values(), current].flat());
    expect(catalogue.filter((code) => !collected.has(code))).toEqual(ofNoOperation[status]);
  });
});

test.each(operations)('$id documents the errors that its own file throws', ({ id, refusals = [] }) => {
  const own = sources.find(({ file }) => file === `src/operations/${id}.ts`);
  const thrown = [...(own?.text ?? '').matchAll(/new ApiError\('(\w+)'/g)].map(
    ([, name]) => name as ErrorName,
  );
  expect(thrown.filter((name) => !refusals.includes(name))).toEqual([]);
});

test('only an operation that needs the queue, a body or a page renderer documents their 503', () => {
  const codes = (id: string) => codesOf(operations.find((one) => one.id === id)!, 503);
  expect(codes('users.track')).toEqual(
    expect.arrayContaining(['queue_full', 'too_many_body_bytes', 'server_busy']),
  );
  expect(codes('segments.list')).not.toEqual(expect.arrayContaining(['queue_unavailable']));
  expect(codes('segments.list')).not.toEqual(expect.arrayContaining(['server_busy']));
  expect(codes('requests.get')).toEqual(expect.arrayContaining(['queue_unavailable']));
  expect(codes('preference_center.create')).toEqual(expect.arrayContaining(['renderer_busy']));
});

/** Returns the values of `code` in the documented answers with a status. */
function codesOf(
  { path: at, method, contentType = 'application/json' }: Operation,
  status: number,
  of = document,
): string[] {
  const described = of.paths[at.replace(/:(\w+)/g, '{$1}')]![method.toLowerCase()]!;
  const answer = described.responses[status] as
    | { content: Record<string, { schema: { properties?: { code?: { enum: string[] } } } }> }
    | undefined;
  return answer?.content[contentType]?.schema.properties?.code?.enum ?? [];
}

function expectFit(schema: Schema, value: unknown): void {
  const fits = compile(schema);
  fits(value);
  expect(fits.errors ?? []).toEqual([]);
}
