import type { IncomingMessage, ServerResponse } from 'node:http';
import { newId } from '../ids.ts';
import { messageOf } from '../log.ts';
import type { Reply } from '../operations/operation.ts';
import type { Json } from '../profile/json.ts';
import { admit } from './admit.ts';
import type { RequestInHand } from './broken-requests.ts';
import { answerDirect } from './direct.ts';
import { type Outcome, record } from './outcome.ts';
import { answerQueued } from './queued.ts';
import { sendJson } from './reply.ts';
import type { EdgeServices, Endpoint } from './services.ts';
import { toReply } from './to-reply.ts';

/**
 * One request from its headers to its answer. Every way in which it can end goes through here: it is refused at a stage
 * of `admit`, carried out at once or put into the queue, or it fails on the way.
 *
 * @param params path parameters
 * @param query parsed query string
 */
export async function serve(
  endpoint: Endpoint,
  request: IncomingMessage,
  response: ServerResponse,
  services: EdgeServices,
  params: Record<string, string>,
  query: Record<string, Json>,
): Promise<void> {
  const started = performance.now();
  const requestId = newId();
  (request as RequestInHand).requestId = requestId;
  (request as RequestInHand).res = response;
  const { operation } = endpoint;
  const outcome: Outcome = { accepted: 0, rejected: 0 };
  let reply: Reply;
  try {
    const admitted = await admit(endpoint, { request, requestId, params, query, outcome }, services);
    reply = await (operation.kind === 'direct'
      ? answerDirect(operation, admitted, services)
      : answerQueued(operation, admitted, services));
  } catch (error) {
    reply = toReply(error, operation, services.log, requestId);
    outcome.error = messageOf(error);
    const { errors } = error as { errors?: unknown };
    if (Array.isArray(errors)) outcome.rejected = errors.length;
  }
  const headers = {
    ...(operation.contentType && reply.body !== undefined && { 'Content-Type': operation.contentType }),
    ...reply.headers,
  };
  const answered = outcome.repeats ?? requestId;
  sendJson(response, reply.status, reply.body, answered, outcome.allowance, headers);
  record(operation, request, requestId, reply.status, outcome, performance.now() - started, services);
}
