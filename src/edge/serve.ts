import { ApiError, type Rejection } from '../errors.ts';
import { newId } from '../platform/ids.ts';
import { type Log, messageOf, type StrangersLog } from '../platform/log.ts';
import { traceThroughout, tracing } from '../platform/tracing.ts';
import type { Admission, Admitted, Endpoint, Refused } from './admission.ts';
import type { DirectRequests, QueuedRequests } from './carry-out.ts';
import type { EdgeMetrics } from './metrics.ts';
import { planRequest, type RequestPlan } from './plan-request.ts';
import type { RefusedObjects } from './refused-objects.ts';
import { type Answer, type Known, NONE_REJECTED, record, sendJson, toReply } from './reply.ts';
import type { Exchange, RequestInHand } from './request.ts';
import type { Responses } from './responses.ts';

/** Where answered requests are recorded. */
interface Records {
  log: Log;
  /** Log for requests of unauthenticated callers. */
  strangers: StrangersLog;
  metrics: EdgeMetrics;
  refusedObjects: Pick<RefusedObjects, 'note'>;
}

/** Serves the requests of operations. */
export class RequestServer {
  readonly #admission: Admission;
  readonly #queued: QueuedRequests;
  readonly #direct: DirectRequests;
  readonly #responses: Responses;
  readonly #records: Records;

  constructor(stages: {
    admission: Admission;
    queued: QueuedRequests;
    direct: DirectRequests;
    /** Bounds the memory of responses that clients do not read. */
    responses: Responses;
    records: Records;
  }) {
    this.#admission = stages.admission;
    this.#queued = stages.queued;
    this.#direct = stages.direct;
    this.#responses = stages.responses;
    this.#records = stages.records;
  }

  /**
   * Handles one request from its headers to its answer. `admit` refuses or admits the request, `planRequest` makes
   * the decisions about an admitted request, and `#carryOut` carries them out. A refusal or an error also becomes an answer here.
   */
  async serve(endpoint: Endpoint, exchange: Exchange): Promise<void> {
    const started = performance.now();
    const { request, response, params, query } = exchange;
    const { operation } = endpoint;
    const requestId = newId();
    // For error handlers that only have the connection.
    request.requestId = requestId;
    request.res = response;

    const admission = await this.#admission.admit(endpoint, { request, params, query, requestId });
    const { requester } = admission;
    const refusal = ({ error, body }: Pick<Refused, 'error' | 'body'>): Answer => {
      const { log } = this.#records;
      return {
        reply: inSpanOf(request, () => toReply(error, { operation, requestId, log, body })),
        accepted: 0,
        rejected: rejectedIn(error),
        error: messageOf(error),
      };
    };
    const answer =
      'error' in admission
        ? refusal(admission)
        : await this.#carryOut(planRequest(operation, admission), admission).catch((error) =>
            refusal({ error, body: admission.body }),
          );

    this.#send(answer, { endpoint, exchange, requestId, requester });
    if (answer.rejected.length > 0 && 'caller' in admission)
      this.#records.refusedObjects.note({
        ...{ requestId, workspaceId: admission.caller.workspaceId, keyId: requester.keyId },
        ...{ operation: operation.id, body: admission.body, rejected: answer.rejected },
        // A direct operation adds no jobs, and the jobs of a repeated request have the id of the first one.
        accepted: operation.kind === 'direct' || answer.repeats !== undefined ? 0 : answer.accepted,
      });
    const milliseconds = performance.now() - started;
    const answered = { operation, request, requestId, answer, requester, milliseconds };
    inSpanOf(request, () => record(answered, this.#records));
  }

  /** Serves a request as part of its span, if the process traces. */
  serveTraced(endpoint: Endpoint, exchange: Exchange): Promise<void> {
    const span = tracing?.active();
    const { request, response } = exchange;
    if (span) request.span = span;
    const work = () => this.serve(endpoint, exchange);
    const needsStore =
      endpoint.operation.kind === 'direct' || request.headers['idempotency-key'] !== undefined;
    return needsStore ? traceThroughout(span, response, work) : work();
  }

  #carryOut(plan: RequestPlan, admitted: Admitted): Promise<Answer> {
    switch (plan.kind) {
      case 'enqueue':
        return this.#queued.enqueue(plan, admitted);
      case 'read':
        return this.#direct.read(plan, admitted);
      case 'change':
        return this.#direct.change(plan, admitted);
    }
  }

  #send({ reply, repeats, text }: Answer, { endpoint, exchange, requestId, requester }: Sender): void {
    const { contentType } = endpoint.operation;
    const typed =
      contentType === undefined || reply.body === undefined
        ? reply
        : { ...reply, headers: { 'Content-Type': contentType, ...reply.headers } };
    sendJson(exchange.response, text === undefined ? typed : { ...typed, text }, {
      requestId: repeats ?? requestId,
      allowance: requester.allowance,
      owner: requester.companyId ?? requester.workspaceId,
      responses: this.#responses,
    });
  }
}

/** A request that gets an answer. */
interface Sender {
  endpoint: Endpoint;
  exchange: Exchange;
  requestId: string;
  requester: Known;
}

/** Returns the elements of the request that an error names. */
function rejectedIn(error: unknown): readonly Rejection[] {
  return error instanceof ApiError ? error.rejected : NONE_REJECTED;
}

/** Runs work in the request's span, so that its log lines contain the span. */
function inSpanOf<Result>(request: RequestInHand, work: () => Result): Result {
  return tracing && request.span ? tracing.withSpan(request.span, work) : work();
}
