import type { Operation } from '../../src/operations/operation.ts';
import { EXAMPLE_GROUP } from '../../src/operations/subscription/states.ts';
import type { Json } from '../../src/profile/json.ts';

export interface ApiAnswer {
  status: number;
  headers: Headers;
  // biome-ignore lint/suspicious/noExplicitAny: the assertions on the body check its shape
  body: any;
}

export interface ApiRequest {
  method?: string;
  path?: string;
  /** The API key; absent: no Authorization header. */
  key?: string | undefined;
  /** Sent as JSON. */
  json?: Json | undefined;
  /** Sent unchanged in place of `json`. */
  raw?: string | Buffer;
  headers?: Record<string, string>;
}

/** Sends one request to a server on loopback and reads its JSON answer; no body is `undefined`. */
export async function send(port: number, request: ApiRequest): Promise<ApiAnswer> {
  const { method = 'POST', path = '/', key, json, raw } = request;
  const body = raw ?? (json === undefined ? undefined : JSON.stringify(json));
  const response = await fetch(`http://127.0.0.1:${port}${path}`, {
    method,
    headers: {
      ...(body !== undefined && { 'content-type': 'application/json' }),
      ...(key !== undefined && { authorization: `Bearer ${key}` }),
      ...request.headers,
    },
    ...(body !== undefined && { body }),
  });
  const text = await response.text();
  return {
    status: response.status,
    headers: response.headers,
    body: text === '' ? undefined : JSON.parse(text),
  };
}

/** Members of a body that must differ in each request, by operation. */
const unlike: Record<string, string> = { 'preference_center.create': 'name' };
let made = 0;

/**
 * Returns the documented example of an operation, as a request that is accepted however often it is sent.
 * @param group the subscription group for examples that contain one
 */
export function exampleOf(
  { id, method, path, body, example }: Operation,
  group: string = EXAMPLE_GROUP,
): ApiRequest {
  const filled = path.replace(/:(\w+)/g, (_, name) =>
    encodeURIComponent(example.params?.[name] ?? 'example'),
  );
  const query = new URLSearchParams(example.query).toString();
  const name = unlike[id];
  const request = {
    method,
    path: query ? `${filled}?${query}` : filled,
    ...(body && {
      json: { ...(example.body as Record<string, Json>), ...(name && { [name]: `made-${++made}` }) },
    }),
  };
  return JSON.parse(JSON.stringify(request).replaceAll(EXAMPLE_GROUP, group));
}

/** Returns the documented status of an accepted request. */
export function acceptedStatus({ replies }: Operation): number {
  return Math.min(...Object.keys(replies).map(Number));
}
