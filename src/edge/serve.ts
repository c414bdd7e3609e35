import { newId } from '../platform/ids.ts';
import { messageOf } from '../platform/log.ts';
import { noteRequest, tracing } from '../platform/tracing.ts';
import { admit } from './admit.ts';
import { answerDirect, answerQueued } from './carry-out.ts';
import { type Answer, type Known, record, sendJson, toReply } from './reply.ts';
import type { Exchange, RequestInHand } from './request.ts';
import type { EdgeServices, Endpoint } from './services.ts';

/**
 * The first stop of the trunk: one request, whose operation is found, from its headers to its answer. Every way in which
 * it can end goes through here: a stage of `admit` refuses it, it is carried out at once or put into the queue, or it fails on the way.
 */
export async function serve(endpoint: Endpoint, exchange: Exchange, services: EdgeServices): Promise<void> {
  const started = performance.now();
  const { request, response } = exchange;
  const { operation } = endpoint;
  const requestId = newId();
  // Where what breaks the connection finds them.
  (request as RequestInHand).requestId = requestId;
  (request as RequestInHand).res = response;

  const admission = await admit(endpoint, { ...exchange, requestId }, services);
  const answer =
    'error' in admission
      ? refusal(admission.error)
      : await (operation.kind === 'direct'
          ? answerDirect(operation, admission, services)
          : answerQueued(operation, admission, services)
        ).catch(refusal);

  send(admission.known, answer);
  const milliseconds = performance.now() - started;
  if (tracing) note(answer, admission.known);
  record({ operation, request, requestId, answer, known: admission.known, milliseconds }, services);

  function note({ accepted, rejected }: Answer, { workspaceId }: Known): void {
    noteRequest(operation.method, operation.path, {
      'penstock.request.id': requestId,
      'penstock.workspace.id': workspaceId,
      'penstock.objects.accepted': accepted,
      'penstock.objects.rejected': rejected,
    });
  }

  function refusal(error: unknown): Answer {
    const { errors } = error as { errors?: unknown };
    return {
      reply: toReply(error, { operation, requestId, log: services.log }),
      accepted: 0,
      rejected: Array.isArray(errors) ? errors.length : 0,
      error: messageOf(error),
    };
  }

  function send({ allowance }: Known, { reply, repeats = requestId }: Answer): void {
    const type = operation.contentType &&
      reply.body !== undefined && { 'Content-Type': operation.contentType };
    sendJson(
      response,
      { ...reply, headers: { ...type, ...reply.headers } },
      { requestId: repeats, allowance },
    );
  }
}
