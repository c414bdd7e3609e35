import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Express, Router } from 'express';
import express from 'express';
import type { Operation } from '../operations/operation.ts';
import { NOT_IMPLEMENTED } from '../operations/scim/messages.ts';
import { namesOneHost, targetOf } from '../platform/listen.ts';
import { traceThroughout, tracing } from '../platform/tracing.ts';
import type { Json } from '../profile/json.ts';
import { compile } from '../schemas/compile.ts';
import { hasBody, receive } from './arriving-body.ts';
import { beginOtherRequest, refuse } from './other-requests.ts';
import { parseQuery, type RequestInHand } from './request.ts';
import { serve, serveTraced } from './serve.ts';
import type { EdgeServices, Endpoint } from './services.ts';

/**
 * The HTTP application: every operation under its method and path, `pages` (documentation, health, metrics)
 * beside them, and JSON answers for all that is neither. A path is one of ours to the letter, or it is none: a rule of
 * a proxy about it cannot be met by another spelling. Only an operation, which wants a key, has one more slash in front
 * of it: so it is called by clients whose base URL ends in one.
 */
export function createApp(operations: Operation[], services: EdgeServices, pages: (app: Express) => void) {
  const app = express();
  app.enable('case sensitive routing');
  app.enable('strict routing');
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', parseQuery);

  const take = tracing ? serveTraced : serve;
  const begin = (request: IncomingMessage, response: ServerResponse) =>
    beginOtherRequest(request, response, services);
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
    exact.set(`${operation.method} ${operation.path}`, endpoint);
    if (operation.listsInQuery) withLists.add(`${operation.method} ${operation.path}`);
    methods.set(operation.path, [...(methods.get(operation.path) ?? []), operation.method]);
    const method = operation.method.toLowerCase() as 'get' | 'post' | 'put' | 'patch' | 'delete';
    routes[method](operation.path, (request, response) =>
      take(
        endpoint,
        {
          request,
          response,
          params: request.params as Record<string, string>,
          query: request.query as Record<string, Json>,
        },
        services,
      ),
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
  app.use((_request, response) => refuse(response, 'notFound'));
  // biome-ignore lint/complexity/useMaxParams: Express knows an error handler by its four parameters.
  app.use((error: unknown, request: IncomingMessage, response: ServerResponse, _next: () => void) => {
    if (!response.hasHeader('X-Request-Id')) begin(request, response);
    const { status } = error as { status?: number };
    // A path that cannot be decoded names nothing.
    if (status !== undefined && status < 500) return refuse(response, 'notFound');
    services.log.error({ err: error, request_id: response.getHeader('X-Request-Id') }, 'unexpected error');
    refuse(response, 'internal');
  });

  /**
   * A request whose method and path are those of an operation, to the letter, needs no router. It goes straight to the
   * stages, the same that the router would bring it to.
   */
  return function handle(request: IncomingMessage, response: ServerResponse): void {
    const mayBeLong = () =>
      withLists.has(`${request.method} ${withoutDoubledSlash(request.url!.split('?', 1)[0]!)}`);
    const refusal = services.heads.admit(request, response, mayBeLong);
    if (refusal) {
      begin(request, response);
      refuse(response, refusal, {
        Connection: 'close',
        ...(refusal === 'unavailable' && { 'Retry-After': '1' }),
      });
      return;
    }
    // HTTP/1.1 asks for the header and for this answer. Of two, a proxy may have looked at the other one.
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
      (request as RequestInHand).arriving = receive(request, response, services.reading.small);
    }
    const endpoint = exact.get(`${request.method} ${withoutDoubledSlash(target)}`);
    if (endpoint) void take(endpoint, { request, response, params: {}, query: {} }, services);
    else if (tracing) traceThroughout(tracing.active(), response, () => app(request, response));
    else app(request, response);
  };
}

function withoutDoubledSlash(target: string): string {
  return target.startsWith('//') ? target.slice(1) : target;
}
