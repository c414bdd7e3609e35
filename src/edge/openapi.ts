import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type ErrorName, errors, explain } from '../errors.ts';
import type { Operation } from '../operations/operation.ts';
import { packageRoot } from '../platform/files.ts';
import { grouped } from '../platform/format.ts';
import { annotations, type Schema } from '../schemas/compile.ts';
import { bucketsOf, rulesOf, type VendorRules } from '../schemas/vendor-rules.ts';
import type { ControlEndpoint } from './control/control.ts';
import { errorBody } from './reply.ts';
import { unavailabilities } from './unavailable.ts';

/** Removes Penstock's own annotations from a schema, but keeps properties with the same names. */
function documented(schema: Schema): Schema {
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

export interface OpenApiDocument {
  openapi: string;
  paths: Record<string, Record<string, Described>>;
  [member: string]: unknown;
}

interface Described {
  operationId: string;
  responses: Record<string, unknown>;
  [member: string]: unknown;
}

/**
 * Builds the OpenAPI 3.1 document of the operations from their definitions.
 * @param control endpoints of `penstock dev`; absent in deployments
 */
export function openApiDocument(
  operations: Operation[],
  {
    control = [],
    rules = rulesOf.spec,
  }: { control?: ControlEndpoint[] | undefined; rules?: VendorRules } = {},
): OpenApiDocument {
  const buckets = bucketsOf(rules);
  const { version } = JSON.parse(readFileSync(join(packageRoot, 'package.json'), 'utf8'));
  const paths: OpenApiDocument['paths'] = {};
  for (const operation of operations) {
    const path = operation.path.replace(/:(\w+)/g, '{$1}');
    paths[path] = {
      ...paths[path],
      [operation.method.toLowerCase()]: describe(operation, { all: operations, buckets }),
    };
  }
  for (const endpoint of control) {
    const { path, method } = endpoint;
    paths[path] = { ...paths[path], [method.toLowerCase()]: describeControl(endpoint) };
  }
  return {
    openapi: '3.1.1',
    info: {
      title: 'Penstock',
      version,
      description:
        'A user-data service for messaging platforms. A 2xx answer means that the accepted data is stored on disk and will take effect.',
      license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
    },
    servers: [{ url: '/' }],
    security: [{ apiKey: [] }],
    paths,
    components: {
      securitySchemes: {
        apiKey: {
          type: 'http',
          scheme: 'bearer',
          description: "An API key that has the operation's permission.",
        },
        scimToken: {
          type: 'http',
          scheme: 'bearer',
          description: 'A SCIM token. `X-Request-Origin` must be the origin of the token.',
        },
      },
      headers,
    },
  };
}

const digits = (description: string) => ({ description, schema: { type: 'string', pattern: '^[0-9]*$' } });

const headers = {
  'X-Request-Id': {
    description:
      'Id of the request in logs and jobs. The answer to a repeated request has the id of the first request.',
    schema: { type: 'string' },
  },
  'X-RateLimit-Limit': digits('The rate limit in requests. Empty if the caller is not authenticated.'),
  'X-RateLimit-Remaining': digits('Requests left in the rate limit.'),
  'X-RateLimit-Reset': digits(
    'Epoch seconds at which the full limit is available again. In a 429, epoch seconds at which the next request is allowed.',
  ),
  'Retry-After': digits('Seconds to wait before you send the request again.'),
};

/** The operations of the document, and the rate limits. */
interface Surroundings {
  all: Operation[];
  buckets: ReturnType<typeof bucketsOf>;
}

function describe(operation: Operation, surroundings: Surroundings): Described {
  const { id, method, path, permission, summary, query, body, example } = operation;
  const isScim = operation.auth === 'scim';
  const parameters = [
    ...pathParameters(path, example.params),
    ...(isScim ? [requestOrigin] : []),
    ...(method === 'POST' ? [idempotencyKey] : []),
    ...queryParameters(query, example.query),
  ];
  return {
    operationId: id,
    tags: [path.split('/').find((part) => part && !/^v\d+$/.test(part))!],
    summary,
    description: `${operation.description}\n\n${isScim ? 'A SCIM token.' : `Permission: ${permission ? `\`${permission}\`` : 'any API key of the workspace'}.`} ${limitOf(operation, surroundings)}`,
    ...(isScim && { security: [{ scimToken: [] }] }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: {
        required: true,
        content: Object.fromEntries(
          typesOf(operation).map((type) => [type, { schema: documented(body), example: example.body }]),
        ),
      },
    }),
    responses: responsesOf(operation),
  };
}

function describeControl({ id, summary, description, body, alsoType, example }: ControlEndpoint): Described {
  const json = (of: object) => ({ 'application/json': of });
  const sent = body && { schema: documented(body), example: example.body };
  return {
    operationId: id,
    tags: ['control'],
    summary,
    description: `${description}\n\nOnly in \`penstock dev\`. No API key is needed.`,
    security: [],
    ...(sent && { requestBody: { content: { ...json(sent), ...(alsoType && { [alsoType]: sent }) } } }),
    responses: { 200: { description: 'Done.', content: json({ example: example.reply }) } },
  };
}

const requestOrigin = {
  name: 'X-Request-Origin',
  in: 'header',
  required: true,
  schema: { type: 'string' },
  description: 'The origin of the SCIM token.',
};

const idempotencyKey = {
  name: 'Idempotency-Key',
  in: 'header',
  required: false,
  schema: { type: 'string', maxLength: 255 },
  description:
    'A key that you choose for this request, for example a UUID. For 24 hours, requests with this key and the same body take effect once and get the same answer. A request with this key and another body is refused with 422. If a request was refused, or answered with 429 or 5xx, you can send it again with the same key.',
};

/** Content types that the body may have. */
function typesOf({ contentType }: Operation): string[] {
  return contentType ? [contentType, 'application/json'] : ['application/json'];
}

const windows: Record<number, string> = { 1: 'second', 60: 'minute', 3600: 'hour', 86400: 'day' };

function limitOf({ id, bucket, auth }: Operation, { all, buckets }: Surroundings): string {
  const { requests, windowSeconds } = buckets[bucket];
  const window = windows[windowSeconds] ?? `${windowSeconds} seconds`;
  const sharing = all.filter((other) => other.bucket === bucket && other.id !== id);
  const shared = sharing.length > 0 ? `, shared with ${sharing.map((other) => other.id).join(', ')}` : '';
  return `Limit: ${grouped(requests)} requests per ${window} and ${auth === 'scim' ? 'company' : 'workspace'}${shared}.`;
}

function pathParameters(path: string, example: Record<string, string> = {}) {
  return [...path.matchAll(/:(\w+)/g)].map(([, name]) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
    ...(example[name!] !== undefined && { example: example[name!] }),
  }));
}

function queryParameters(query: Schema | undefined, example: Record<string, string> = {}) {
  const required = (query?.required as readonly string[] | undefined) ?? [];
  return Object.entries((query?.properties ?? {}) as Record<string, Schema>).map(([name, schema]) => ({
    name,
    in: 'query',
    required: required.includes(name),
    schema: documented(schema),
    ...(example[name] !== undefined && { example: example[name] }),
  }));
}

/** Lists the errors that an operation can return: errors of every operation, and its own. */
function errorsOf(operation: Operation): ErrorName[] {
  const { method, body, refusals = [], auth } = operation;
  const takesKey = method === 'POST';
  return [
    ...(body ? (['malformedBody', 'bodyNotObject', 'bodyTooComplex'] as const) : []),
    ...refusals,
    ...(takesKey ? (['invalidIdempotencyKey', 'idempotencyKeyReused'] as const) : []),
    ...(auth === 'scim'
      ? (['scimUnauthorized'] as const)
      : (['invalidKey', 'permissionMissing', 'addressNotAllowed'] as const)),
    ...(body ? (['bodyTooSlow', operation.tooLarge ?? 'bodyTooLarge', 'unsupportedMediaType'] as const) : []),
    'rateLimited',
    'internal',
    ...unavailabilities(operation),
  ];
}

function responsesOf(operation: Operation): Record<string, unknown> {
  const { replies, query, example } = operation;
  const errorSchema = operation.errorSchema ?? messageSchema;
  const responses: Record<string, unknown> = {};
  if (query)
    responses[400] = response({
      description: 'A parameter is missing or not valid.',
      content: { schema: withCodes(documented(errorSchema), operation, ['invalidRequest']) },
      type: operation.contentType,
    });
  const [accepted] = Object.keys(replies);
  for (const [status, { description, schema }] of Object.entries(replies)) {
    const content = { schema: documented(schema), ...(status === accepted && { example: example.reply }) };
    responses[status] = response({
      description,
      content: status === '204' ? undefined : content,
      type: operation.contentType,
    });
  }
  for (const [status, names] of byStatus(errorsOf(operation))) {
    const own = replies[status];
    const { messages = {} } = operation;
    const textOf = (name: ErrorName) => messages[name] ?? errors[name].message;
    const texts = new Set(names.map(textOf));
    const description = own?.description ?? [...texts].join(' · ');
    const schema = withCodes(documented(own?.schema ?? errorSchema), operation, names);
    const examples = Object.fromEntries(
      names.map((name) => [name, { value: errorBody(operation, { entry: name, message: textOf(name) }) }]),
    );
    responses[status] = response({
      description,
      content: { schema, examples },
      retryable: status === 429 || status === 503,
      type: operation.contentType,
    });
  }
  return responses;
}

function byStatus(names: ErrorName[]): Map<number, ErrorName[]> {
  const groups = new Map<number, ErrorName[]>();
  for (const name of names)
    groups.set(errors[name].status, [...(groups.get(errors[name].status) ?? []), name]);
  return groups;
}

/** Adds `code` and `detail` to a schema. SCIM errors have neither. */
function withCodes(schema: unknown, { auth }: Operation, names: ErrorName[]): unknown {
  const { type, properties, required = [] } = schema as Record<string, unknown>;
  const codes = names.flatMap((name) => explain(name)?.code ?? []);
  if (auth === 'scim' || type !== 'object') return schema;
  return {
    ...(schema as object),
    required: [...(required as string[]), 'code', 'detail'],
    properties: {
      ...(properties as object),
      code: {
        enum: [
          ...new Set([
            ...codes,
            ...(names.some((name) => errors[name].status === 400) ? ['invalid_request'] : []),
          ]),
        ],
        description: 'Stable name of the error, explained in docs/errors.md.',
      },
      detail: { type: 'string', description: 'The value, the limit and the remedy, for people.' },
    },
  };
}

const messageSchema: Schema = {
  type: 'object',
  required: ['message'],
  properties: { message: { type: 'string' } },
};

interface Answer {
  description: string;
  /** Absent: no body. */
  content: object | undefined;
  /** Whether the answer has a Retry-After header. */
  retryable?: boolean;
  /** Content type of the body. */
  type: string | undefined;
}

function response({ description, content, retryable = false, type = 'application/json' }: Answer) {
  const { 'Retry-After': _, ...always } = headers;
  return {
    description,
    headers: Object.fromEntries(
      Object.keys(retryable ? headers : always).map((name) => [
        name,
        { $ref: `#/components/headers/${name}` },
      ]),
    ),
    ...(content && { content: { [type]: content } }),
  };
}
