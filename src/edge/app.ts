import type { IncomingMessage, ServerResponse } from 'node:http';
import express, { type Express } from 'express';
import type { Operation } from '../operations/operation.ts';
import { NOT_IMPLEMENTED } from '../operations/scim/messages.ts';
import type { Json } from '../profile/json.ts';
import { compile } from '../schemas/compile.ts';
import { beginOtherRequest, refuse } from './other-requests.ts';
import { parseQuery } from './query.ts';
import { serve } from './serve.ts';
import type { EdgeServices, Endpoint } from './services.ts';

/**
 * The HTTP application: every operation under its method and path, `pages` (documentation, health, metrics)
 * beside them, and JSON answers for all that is neither.
 */
export function createApp(operations: Operation[], services: EdgeServices, pages: (app: Express) => void) {
  const app = express();
  app.disable('x-powered-by');
  app.disable('etag');
  app.set('query parser', parseQuery);

  const exact = new Map<string, Endpoint>();
  const methods = new Map<string, string[]>();
  for (const operation of operations) {
    const endpoint: Endpoint = {
      operation,
      body: operation.body && operation.kind === 'direct' ? compile(operation.body) : undefined,
      query: operation.query && compile(operation.query),
    };
    exact.set(`${operation.method} ${operation.path}`, endpoint);
    methods.set(operation.path, [...(methods.get(operation.path) ?? []), operation.method]);
    const method = operation.method.toLowerCase() as 'get' | 'post' | 'put' | 'patch' | 'delete';
    app[method](operation.path, (request, response) =>
      serve(
        endpoint,
        request,
        response,
        services,
        request.params as Record<string, string>,
        request.query as Record<string, Json>,
      ),
    );
  }
  app.use((request, response, next) => {
    beginOtherRequest(request, response, services.log);
    next();
  });
  pages(app);
  for (const path of NOT_IMPLEMENTED)
    app.all(path, (_request, response) => refuse(response, 'notImplemented'));
  for (const [path, allowed] of methods) {
    app.all(path, (_request, response) =>
      refuse(response, 'methodNotAllowed', { Allow: allowed.join(', ') }),
    );
  }
  app.use((_request, response) => refuse(response, 'notFound'));
  app.use((error: unknown, request: IncomingMessage, response: ServerResponse, _next: () => void) => {
    if (!response.hasHeader('X-Request-Id')) beginOtherRequest(request, response, services.log);
    const { status } = error as { status?: number };
    // A path that cannot be decoded names nothing.
    if (status !== undefined && status < 500) return refuse(response, 'notFound');
    services.log.error({ err: error, request_id: response.getHeader('X-Request-Id') }, 'unexpected error');
    refuse(response, 'internal');
  });

  /**
   * A request whose method and path are those of an operation, to the letter, needs no router: it goes
   * straight to the stages, the same that the router would bring it to.
   */
  return function handle(request: IncomingMessage, response: ServerResponse): void {
    // HTTP/1.1 asks for the header and for this answer.
    if (request.headers.host === undefined && request.httpVersion === '1.1') {
      beginOtherRequest(request, response, services.log);
      refuse(response, 'malformedRequest', { Connection: 'close' });
      return;
    }
    const endpoint = exact.get(`${request.method} ${request.url}`);
    if (endpoint) void serve(endpoint, request, response, services, {}, {});
    else app(request, response);
  };
}
