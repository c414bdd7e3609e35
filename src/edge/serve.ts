import type { IncomingMessage, ServerResponse } from 'node:http';
import type { ValidateFunction } from 'ajv';
import type { Config } from '../config.ts';
import { ApiError, BadRequest } from '../errors.ts';
import { newId } from '../ids.ts';
import { type Log, messageOf } from '../log.ts';
import type { Caller, Operation, Plan, QueuedOperation, Reply, Resources } from '../operations/operation.ts';
import type { Json } from '../profile/json.ts';
import type { GroupCommit } from '../queue/group-commit.ts';
import { type LaneEntry, QueueUnavailable } from '../queue/lanes.ts';
import { envelopesOf } from '../queue/pack.ts';
import { describeError } from '../schemas/compile.ts';
import { aboutRequest } from './about-request.ts';
import { directAttempt, queuedAttempt } from './attempts.ts';
import type { Authenticator } from './authenticate.ts';
import type { ScimAuthenticator } from './authenticate-scim.ts';
import { awaitOutcomes, UNDECIDED } from './await-outcomes.ts';
import { readJsonObject, requireJson } from './body.ts';
import type { RequestInHand } from './broken-requests.ts';
import { bytesOf } from './bytes-of.ts';
import { clientAddress } from './client-address.ts';
import type { Effects } from './effects.ts';
import { readIdempotencyKey } from './idempotency-key.ts';
import type { ApiKey } from './known-keys.ts';
import type { EdgeMetrics } from './metrics.ts';
import type { Kept, Once } from './once.ts';
import { planWithGroups } from './plan-with-groups.ts';
import type { Allowance, RateLimiter } from './rate-limit.ts';
import type { Reading } from './reading.ts';
import { sendJson } from './reply.ts';
import { levelOf, requestLine } from './request-line.ts';
import { toReply } from './to-reply.ts';
import type { InTurn } from './turns.ts';

export interface EdgeServices {
  config: Config;
  log: Log;
  metrics: EdgeMetrics;
  authenticator: Authenticator;
  scimAuthenticator: ScimAuthenticator;
  /** What connectors send in bursts, a few requests at a time. */
  scimTurns: InTurn;
  /** Lets large bodies in. */
  reading: Reading;
  rateLimiter: RateLimiter;
  queue: GroupCommit;
  once: Once;
  /** Says why nothing more may be stored, by the queue or straight in the store, if so. */
  overload(through: 'queue' | 'store'): string | undefined;
  effects: Effects;
  resources: Resources;
}

/** An operation with its validators, compiled at boot. */
export interface Endpoint {
  operation: Operation;
  body: ValidateFunction | undefined;
  query: ValidateFunction | undefined;
}

/**
 * One request from its headers to its answer. Every way in which a request can end is in this file.
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
    reply = await answer(endpoint, request, services, params, query, requestId, outcome);
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

/** What the log line and the headers say about a request, as far as it got. */
interface Outcome {
  workspaceId?: string;
  companyId?: string | undefined;
  allowance?: Allowance;
  /** The first request with the same `Idempotency-Key`, whose answer this one gets. */
  repeats?: string;
  accepted: number;
  rejected: number;
  error?: string;
}

async function answer(
  { operation, body: checkBody, query: checkQuery }: Endpoint,
  request: IncomingMessage,
  services: EdgeServices,
  params: Record<string, string>,
  query: Record<string, Json>,
  requestId: string,
  outcome: Outcome,
): Promise<Reply> {
  const now = Date.now();
  const address = clientAddress(request, services.config.TRUST_PROXY_HOPS);

  const key: ApiKey & { companyId?: string } =
    operation.auth === 'scim'
      ? await services.scimAuthenticator.authenticate(request.headers, address, now)
      : await services.authenticator.authenticate(request.headers.authorization, address, now);
  const { companyId } = key;
  if (companyId === undefined) outcome.workspaceId = key.workspaceId;
  outcome.companyId = companyId;
  if (operation.permission !== undefined && !key.permissions.has(operation.permission))
    throw new ApiError('accessDenied');

  // Before the rate limit, which asks a Redis that may be in trouble, and counts what is not refused.
  if (stores(operation)) {
    const overload = services.overload(operation.kind === 'queued' ? 'queue' : 'store');
    if (overload) throw new QueueUnavailable(overload);
  }

  const allowance = await services.rateLimiter.take(key, operation.bucket);
  outcome.allowance = allowance;
  if (!allowance.allowed) {
    throw new ApiError('rateLimited', undefined, { 'Retry-After': String(allowance.retryAfter) });
  }

  let body: Record<string, Json> = {};
  if (operation.body) {
    requireJson(request);
    body = await readJsonObject(request, {
      limit: services.config.MAX_BODY_BYTES,
      reading: services.reading,
    });
    if (operation.spell) body = operation.spell(body);
    if (checkBody && !checkBody(body)) throw new BadRequest(describeError(checkBody.errors![0]!));
  }
  if (checkQuery && !checkQuery(query)) throw new BadRequest(describeError(checkQuery.errors![0]!));

  const caller: Caller = {
    workspaceId: key.workspaceId,
    ...(companyId !== undefined && { companyId }),
    requestId,
    now,
    hasGroup: (id) => key.groups.has(id),
    channelOf: (id) => key.groups.get(id),
    isBlocked: (externalId) => key.blocked.has(externalId),
  };
  const { once, resources } = services;
  const sent = request.headers['idempotency-key'];
  const ownerId = companyId ?? key.workspaceId;
  const idempotent =
    sent === undefined
      ? undefined
      : await readIdempotencyKey(sent, { ownerId, operation, params, query, body });

  if (operation.kind === 'direct') {
    const input = { body, query, params, request: aboutRequest(request, services.config) };
    const handle = (as: string) => {
      const work = () => operation.handle({ ...caller, requestId: as }, input, resources);
      return operation.auth === 'scim' ? services.scimTurns(work) : work();
    };
    if (idempotent && operation.isRead) await once.read(idempotent, requestId);
    if (!idempotent || operation.isRead) return handle(requestId);
    return answerOnce(once.once(idempotent, directAttempt(requestId, handle)), requestId, outcome);
  }

  const makePlan = () =>
    planWithGroups(operation, caller, body, async () => {
      const renewed = await services.authenticator.renew(request.headers.authorization, address, now);
      return renewed.groups;
    });
  const accepted_at = new Date(now).toISOString();
  const envelopeRequest = { request_id: requestId, workspace_id: key.workspaceId, accepted_at };
  const settle = (plan: Plan, entries: LaneEntry[]) =>
    settled(operation, plan, () => envelopesOf(envelopeRequest, entries), services, outcome);
  if (idempotent) {
    const attempt = queuedAttempt({
      queue: services.queue,
      request: envelopeRequest,
      makePlan,
      bytesOf: (objects) => bytesOf(request, objects),
      settle,
      waits: operation.readBackWithin !== undefined,
    });
    return answerOnce(once.once(idempotent, attempt), requestId, outcome);
  }

  const plan = await makePlan();
  const entries = await services.queue.enqueue(envelopeRequest, plan.objects, bytesOf(request, plan.objects));
  outcome.accepted = plan.objects.length;
  outcome.rejected = plan.rejected;
  const waits = operation.readBackWithin !== undefined || plan.settle !== undefined;
  return waits ? settle(plan, entries) : plan.reply;
}

/** The answer that everyone with the same `Idempotency-Key` gets. */
async function answerOnce(answering: Promise<Kept>, requestId: string, outcome: Outcome): Promise<Reply> {
  const kept = await answering;
  outcome.accepted = kept.accepted;
  outcome.rejected = kept.rejected;
  if (kept.requestId !== requestId) outcome.repeats = kept.requestId;
  return kept.reply;
}

/** The answer when the objects are on disk; some wait until these have taken effect, or say how they ended. */
async function settled(
  operation: QueuedOperation,
  plan: Plan,
  envelopes: () => string[],
  { effects, resources }: EdgeServices,
  outcome: Outcome,
): Promise<Reply> {
  const { readBackWithin } = operation;
  if (readBackWithin !== undefined && !(await effects.awaited(envelopes(), readBackWithin))) {
    outcome.error = UNDECIDED;
  }
  if (!plan.settle) return plan.reply;
  const ids = plan.objects.map(({ id }) => id);
  const ended = await awaitOutcomes(resources.database.pool, ids);
  if ('errors' in ended) return plan.settle(ended.errors);
  outcome.error = ended.unknown;
  return plan.reply;
}

/** Whether a request leaves something behind, and is refused while there is too much to do. */
function stores({ kind, method, readsOnly }: Operation): boolean {
  return kind === 'queued' || (method !== 'GET' && !readsOnly);
}

function record(
  operation: Operation,
  request: IncomingMessage,
  requestId: string,
  status: number,
  outcome: Outcome,
  milliseconds: number,
  { log, metrics }: EdgeServices,
): void {
  metrics.requests.inc({ operation: operation.id, status });
  metrics.duration.observe({ operation: operation.id }, milliseconds / 1000);
  if (outcome.accepted) metrics.accepted.inc({ operation: operation.id }, outcome.accepted);
  if (outcome.rejected) metrics.rejected.inc({ operation: operation.id }, outcome.rejected);
  log[levelOf(status)](
    {
      ...requestLine(request, requestId, status, milliseconds),
      operation: operation.id,
      workspace_id: outcome.workspaceId,
      ...(outcome.companyId && { company_id: outcome.companyId }),
      ...(outcome.repeats && { repeats: outcome.repeats }),
      accepted: outcome.accepted,
      rejected: outcome.rejected,
      ...(outcome.error && { error: outcome.error }),
    },
    'request',
  );
}
