import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Express, Request, RequestHandler, Response, Router } from 'express';
import express from 'express';
import { type ErrorName, errorBodyOf, errors } from '../errors.ts';
import type { Operation } from '../operations/operation.ts';
import { NOT_IMPLEMENTED, SCIM_ROOT, SCIM_TYPE, scimErrorBody } from '../operations/scim/messages.ts';
import { newId } from '../platform/ids.ts';
import { namesOneHost, targetOf } from '../platform/listen.ts';
import type { Log, StrangersLog } from '../platform/log.ts';
import { traceThroughout, tracing } from '../platform/tracing.ts';
import type { Json } from '../profile/json.ts';
import { compile } from '../schemas/compile.ts';
import type { Endpoint } from './admission.ts';
import type { Heads } from './heads.ts';
import type { Reading } from './reading.ts';
import { levelOf, requestLine, sendJson } from './reply.ts';
import { type Exchange, hasBody, parseQuery, type RequestInHand, receive } from './request.ts';
import type { RequestServer } from './serve.ts';
import { isUnavailable, whyUnavailable } from './unavailable.ts';

/** Logs of requests without an operation. */
interface PageLogs {
  log: Log;
  /** Log for requests of unauthenticated callers. */
  strangers: StrangersLog;
}

interface AppParts extends PageLogs {
  /** Serves the requests of operations. */
  server: RequestServer;
  /** Admits requests by their heads. */
  heads: Pick<Heads, 'admit'>;
  /** Memory of the bodies that are received without waiting. */
  smallBodies: Reading['small'];
}

/**
 * Creates the HTTP application: every operation under its method and path, the `pages` (documentation, health,
 * metrics), and JSON answers for all other paths. Paths must match exactly, so that another spelling cannot bypass a
 * proxy's rule for a path. Only operations, which require a key, accept one additional slash at the front, because
 * clients whose base URL ends in a slash send it.
 */
export function createApp(operations: Operation[], parts: AppParts, pages: (app: Express) => void) {
  const { server, heads, smallBodies, log } = parts;
  const app = express();
  app.enable('case sensitive routing');
  app.enable('strict routing');
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', parseQuery);

  const take = (endpoint: Endpoint, exchange: Exchange) =>
    tracing ? server.serveTraced(endpoint, exchange) : server.serve(endpoint, exchange);
  const begin = (request: IncomingMessage, response: ServerResponse) =>
    beginOtherRequest(request, response, parts);
  const routes: Router = express.Router({ caseSensitive: true, strict: true });
  const exact = new Map<string, Endpoint>();
  const methods = new Map<string, string[]>();
  const withLists = new Set<string>();
  for (const operation of operations) {
    const endpoint: Endpoint = {
      operation,
      body: operation.body && operation.kind === 'direct' ? compile(operation.body) : undefined,
      query: operation.query && compile(operation.query),
    };
    if (operation.listsInQuery) withLists.add(`${operation.method} ${operation.path}`);
    methods.set(operation.path, [...(methods.get(operation.path) ?? []), operation.method]);
    if (!operation.path.includes(':')) {
      exact.set(`${operation.method} ${operation.path}`, endpoint);
      if (operation.method === 'GET') exact.set(`HEAD ${operation.path}`, endpoint);
      continue;
    }
    const method = operation.method.toLowerCase() as 'get' | 'post' | 'put' | 'patch' | 'delete';
    routes[method](operation.path, (request, response) =>
      take(endpoint, {
        request,
        response,
        params: request.params as Record<string, string>,
        query: request.query as Record<string, Json>,
      }),
    );
  }
  for (const path of NOT_IMPLEMENTED) {
    routes.all(path, (request, response) => {
      begin(request, response);
      refuse(response, 'notImplemented');
    });
  }
  for (const [path, allowed] of methods) {
    routes.all(path, (request, response) => {
      begin(request, response);
      refuse(response, 'methodNotAllowed', { Allow: allowed.join(', ') });
    });
  }
  app.use((request, response, next) => {
    const sent = request.url;
    request.url = withoutDoubledSlash(sent);
    routes(request, response, (error: unknown) => {
      request.url = sent;
      next(error);
    });
  });
  app.use((request, response, next) => {
    begin(request, response);
    next();
  });
  pages(app);
  app.use((request, response) => {
    const servedPath = knownWithoutSlash(request.path);
    if (servedPath === undefined) refuse(response, 'notFound');
    else {
      const fact = `The path differs from ${servedPath} only by a trailing slash.`;
      refuse(response, { entry: 'trailingSlash', fact });
    }
  });
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  app.use((error: unknown, request: IncomingMessage, response: ServerResponse, _next: () => void) => {
    if (!response.hasHeader('X-Request-Id')) begin(request, response);
    const { status } = error as { status?: number };
    // A path that cannot be decoded matches no route.
    if (status !== undefined && status < 500) return refuse(response, 'notFound');
    if (isUnavailable(error)) return refuse(response, whyUnavailable(error), { 'Retry-After': '1' });
    log.error({ err: error, request_id: response.getHeader('X-Request-Id') }, 'unexpected error');
    refuse(response, 'internal');
  });

  const paths = [...methods.keys()].map((path) => ({
    path,
    pattern: new RegExp(`^${path.replace(/:\w+/g, '[^/]+')}$`),
  }));
  /** Finds the known path from which an unknown one differs only by a trailing slash. */
  function knownWithoutSlash(sent: string): string | undefined {
    const target = withoutDoubledSlash(sent);
    const other = target.endsWith('/') ? target.slice(0, -1) : `${target}/`;
    return paths.find(({ pattern }) => pattern.test(other))?.path;
  }

  /**
   * Handles a request. An operation without parameters in its path is found in a table. Express serves the other
   * operations, the pages and all refusals.
   */
  return function handle(request: RequestInHand, response: ServerResponse): void {
    const mayBeLong = () =>
      withLists.has(`${request.method} ${withoutDoubledSlash(request.url!.split('?', 1)[0]!)}`);
    const refusal = heads.admit(request, response, mayBeLong);
    if (refusal) {
      begin(request, response);
      refuse(response, refusal, {
        Connection: 'close',
        ...(refusal === 'tooManyHeaderBytes' && { 'Retry-After': '1' }),
      });
      return;
    }
    // HTTP/1.1 requires the header and this answer. If there are two hosts, a proxy may have checked the other one.
    if (!namesOneHost(request)) {
      begin(request, response);
      refuse(response, 'malformedRequest', { Connection: 'close' });
      return;
    }
    const target = targetOf(request);
    if (target === undefined) {
      begin(request, response);
      refuse(response, 'notFound');
      return;
    }
    request.url = target;
    if (hasBody(request)) {
      request.arriving = receive(request, response, smallBodies);
    }
    const [path, query] = splitOnce(withoutDoubledSlash(target), '?');
    const endpoint = exact.get(`${request.method} ${path}`);
    if (endpoint) void take(endpoint, { request, response, params: {}, query: parseQuery(query) });
    else if (tracing) traceThroughout(tracing.active(), response, () => app(request, response));
    else app(request, response);
  };
}

/** Splits a text at the first separator. The second part is null without a separator. */
function splitOnce(text: string, separator: string): [string, string | null] {
  const end = text.indexOf(separator);
  return end < 0 ? [text, null] : [text.slice(0, end), text.slice(end + separator.length)];
}

function withoutDoubledSlash(target: string): string {
  return target.startsWith('//') ? target.slice(1) : target;
}

/** Monitoring systems request these paths every few seconds and check the answers, so they are not logged. */
const PROBES = new Set(['/healthz', '/readyz', '/metrics']);

/** Fields that a page adds to the log line of its request. */
export interface PageLocals {
  logFields?: Record<string, unknown>;
}

/**
 * Begins a request without an operation: sets the headers that every answer has, and logs a line when the answer has
 * ended, except for probes. The line contains the path only if it is a known route: any other path is the caller's
 * text, and may identify a person.
 */
function beginOtherRequest(
  request: IncomingMessage,
  response: ServerResponse,
  { log, strangers }: PageLogs,
): void {
  const started = performance.now();
  const requestId = newId();
  response.setHeader('X-Request-Id', requestId);
  // Rate limits count only operations.
  for (const name of ['Limit', 'Remaining', 'Reset']) response.setHeader(`X-RateLimit-${name}`, '');
  response.setHeader('X-Content-Type-Options', 'nosniff');
  const recordRequest = () => {
    const path = (request as Request).route?.path as string | undefined;
    const { statusCode } = response;
    const isRead = request.method === 'GET' || request.method === 'HEAD';
    if (path !== undefined && PROBES.has(path) && isRead) return;
    const milliseconds = performance.now() - started;
    const line = requestLine({ request, requestId, milliseconds }, statusCode);
    const { logFields } = (response as Response<unknown, PageLocals>).locals ?? {};
    const fields = { ...line, method: request.method, ...(path && { path }), ...logFields };
    // A valid link to a preference center counts like a key.
    if (logFields?.workspace_id !== undefined) log[levelOf(statusCode)](fields, 'request');
    else strangers.line(levelOf(statusCode), fields, 'request');
  };
  response.once('close', tracing ? tracing.bind(recordRequest) : recordRequest);
}

/** Answers a request that has begun with an error of the catalogue. */
export function refuse(
  response: ServerResponse,
  refused: ErrorName | { entry: ErrorName; fact: string },
  headers: Record<string, string> = {},
): void {
  const { entry, fact } = typeof refused === 'string' ? { entry: refused, fact: undefined } : refused;
  const { status, message } = errors[entry];
  const requestId = String(response.getHeader('X-Request-Id'));
  if (isScim(response.req)) {
    const typed = { 'Content-Type': SCIM_TYPE, ...headers };
    sendJson(response, { status, body: scimErrorBody({ message, status }), headers: typed }, { requestId });
  } else {
    sendJson(response, { status, body: errorBodyOf(entry, fact), headers }, { requestId });
  }
}

/** SCIM clients expect errors in SCIM's format, also for paths without an operation. */
function isScim({ url = '' }: IncomingMessage): boolean {
  return new RegExp(`^${SCIM_ROOT}(?:[/?]|$)`, 'i').test(url);
}

/** Adds a read-only page with GET and HEAD. Other methods are refused with 405, which lists those two. */
export function addPage(app: Express, path: string, show: RequestHandler): void {
  app
    .route(path)
    .get(show)
    .all((_request: Request, response: Response) =>
      refuse(response, 'methodNotAllowed', { Allow: 'GET, HEAD' }),
    );
}
