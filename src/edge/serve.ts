import { newId } from '../platform/ids.ts';
import { messageOf } from '../platform/log.ts';
import { traceThroughout, tracing } from '../platform/tracing.ts';
import { admit } from './admit.ts';
import { answerDirect, answerQueued } from './carry-out.ts';
import { type Answer, type Known, record, sendJson, toReply } from './reply.ts';
import type { Exchange, RequestInHand } from './request.ts';
import type { EdgeServices, Endpoint } from './services.ts';

/**
 * The first stop of the trunk: one request, whose operation is found, from its headers to its answer. Every way in
 * which it can end goes through here. A stage of `admit` refuses it, it is carried out at once or put into the queue,
 * or it fails on the way.
 */
export async function serve(endpoint: Endpoint, exchange: Exchange, services: EdgeServices): Promise<void> {
  const started = performance.now();
  const { request, response } = exchange;
  const { operation } = endpoint;
  const requestId = newId();
  // Where what breaks the connection finds them.
  (request as RequestInHand).requestId = requestId;
  (request as RequestInHand).res = response;

  const { params, query } = exchange;
  const admission = await admit(endpoint, { request, params, query, requestId }, services);
  const answer =
    'error' in admission
      ? refusal(admission.error)
      : await (operation.kind === 'direct'
          ? answerDirect(operation, admission, services)
          : answerQueued(operation, admission, services)
        ).catch(refusal);

  send(admission.known, answer);
  const milliseconds = performance.now() - started;
  const answered = { operation, request, requestId, answer, known: admission.known, milliseconds };
  inSpanOf(request, () => record(answered, services));

  function refusal(error: unknown): Answer {
    const { errors } = error as { errors?: unknown };
    return {
      reply: inSpanOf(request, () => toReply(error, { operation, requestId, log: services.log })),
      accepted: 0,
      rejected: Array.isArray(errors) ? errors.length : 0,
      error: messageOf(error),
    };
  }

  function send({ allowance }: Known, { reply, repeats = requestId }: Answer): void {
    const { contentType } = operation;
    const typed =
      contentType === undefined || reply.body === undefined
        ? reply
        : { ...reply, headers: { 'Content-Type': contentType, ...reply.headers } };
    sendJson(response, typed, { requestId: repeats, allowance });
  }
}

/** The same as part of the request's span, for a process that traces. */
export function serveTraced(endpoint: Endpoint, exchange: Exchange, services: EdgeServices): Promise<void> {
  const span = tracing?.active();
  const { request, response } = exchange;
  if (span) (request as RequestInHand).span = span;
  const work = () => serve(endpoint, exchange, services);
  const asksStore = endpoint.operation.kind === 'direct' || request.headers['idempotency-key'] !== undefined;
  return asksStore ? traceThroughout(span, response, work) : work();
}

/** For lines of the log. */
function inSpanOf<Result>(request: RequestInHand, work: () => Result): Result {
  return tracing && request.span ? tracing.within(request.span, work) : work();
}
