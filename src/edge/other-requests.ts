import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Express, Request, RequestHandler, Response } from 'express';
import { type ErrorName, errors } from '../errors.ts';
import { SCIM_ROOT, SCIM_TYPE, scimErrorBody } from '../operations/scim/messages.ts';
import { newId } from '../platform/ids.ts';
import { tracing } from '../platform/tracing.ts';
import { levelOf, requestLine, sendJson } from './reply.ts';
import type { EdgeServices } from './services.ts';

/** Asked every few seconds by machines, which look at the answer: they leave no line in the log. */
const PROBES = new Set(['/healthz', '/readyz', '/metrics']);

/** What a page leaves for the log line of its request. */
export interface PageLocals {
  known?: Record<string, unknown>;
}

/**
 * Begins a request that is no operation's: gives its answer the headers that every answer has, and the log its
 * line when the answer has ended, except for probes. The line names the path only where it is one of ours:
 * any other is the caller's text, and may name a person.
 */
export function beginOtherRequest(
  request: IncomingMessage,
  response: ServerResponse,
  { log, strangers }: Pick<EdgeServices, 'log' | 'strangers'>,
): void {
  const started = performance.now();
  const requestId = newId();
  response.setHeader('X-Request-Id', requestId);
  // No limit counts what is no operation.
  for (const name of ['Limit', 'Remaining', 'Reset']) response.setHeader(`X-RateLimit-${name}`, '');
  response.setHeader('X-Content-Type-Options', 'nosniff');
  const tell = () => {
    const path = (request as Request).route?.path as string | undefined;
    const { statusCode } = response;
    const isRead = request.method === 'GET' || request.method === 'HEAD';
    if (path !== undefined && PROBES.has(path) && isRead) return;
    const milliseconds = performance.now() - started;
    const line = requestLine({ request, requestId, milliseconds }, statusCode);
    const { known } = (response as Response<unknown, PageLocals>).locals ?? {};
    const fields = { ...line, method: request.method, ...(path && { path }), ...known };
    // A link to a preference center that was right is as good as a key.
    if (known?.workspace_id !== undefined) log[levelOf(statusCode)](fields, 'request');
    else strangers.line(levelOf(statusCode), fields, 'request');
  };
  response.once('close', tracing ? tracing.bind(tell) : tell);
}

/** Answers a request that has begun with an entry of the catalogue. */
export function refuse(
  response: ServerResponse,
  entry: ErrorName,
  headers: Record<string, string> = {},
): void {
  const { status, message } = errors[entry];
  const requestId = String(response.getHeader('X-Request-Id'));
  if (isScim(response.req)) {
    const typed = { 'Content-Type': SCIM_TYPE, ...headers };
    sendJson(
      response,
      { status, body: scimErrorBody(message, undefined, status), headers: typed },
      { requestId },
    );
  } else {
    sendJson(response, { status, body: { message }, headers }, { requestId });
  }
}

/** Clients of SCIM read errors in its own form, whatever it is that is no operation. */
function isScim({ url = '' }: IncomingMessage): boolean {
  return new RegExp(`^${SCIM_ROOT}(?:[/?]|$)`, 'i').test(url);
}

/** A page that is read: GET and HEAD; any other method is refused with 405 and those two. */
export function addPage(app: Express, path: string, show: RequestHandler): void {
  app
    .route(path)
    .get(show)
    .all((_request: Request, response: Response) =>
      refuse(response, 'methodNotAllowed', { Allow: 'GET, HEAD' }),
    );
}
