import type { IncomingMessage } from 'node:http';
import type { ErrorObject } from 'ajv';
import { ApiError, BadRequest, type Rejection } from '../errors.ts';
import type { Caller, Operation } from '../operations/operation.ts';
import { now as readClock } from '../platform/clock.ts';
import { newId } from '../platform/ids.ts';
import { messageOf } from '../platform/log.ts';
import { traceThroughout, tracing } from '../platform/tracing.ts';
import type { Json } from '../profile/json.ts';
import { QueueUnavailable } from '../queue/lanes.ts';
import { describeError } from '../schemas/compile.ts';
import type { BucketName } from '../schemas/limits.ts';
import { readJsonObject, requireJson } from './body.ts';
import { type Admitted, answerDirect, answerQueued } from './carry-out.ts';
import { readIdempotencyKey } from './idempotency.ts';
import type { ApiKey } from './key-cache.ts';
import type { Allowance } from './rate-limit.ts';
import { type Answer, type Known, NONE_REJECTED, record, sendJson, toReply } from './reply.ts';
import { clientAddress, type Exchange, type RequestInHand } from './request.ts';
import type { EdgeServices, Endpoint } from './services.ts';
import { stores } from './unavailable.ts';

/**
 * Handles one request from its headers to its answer. `admit` refuses or admits the request. A direct operation is
 * executed at once, and the objects of a queued operation are added to the queue. A refusal or an error also becomes an
 * answer here.
 */
export async function serve(endpoint: Endpoint, exchange: Exchange, services: EdgeServices): Promise<void> {
  const started = performance.now();
  const { request, response } = exchange;
  const { operation } = endpoint;
  const requestId = newId();
  // For error handlers that only have the connection.
  request.requestId = requestId;
  request.res = response;

  const { params, query } = exchange;
  const admission = await admit(endpoint, { request, params, query, requestId }, services);
  const answer =
    'error' in admission
      ? refusal(admission)
      : await (operation.kind === 'direct'
          ? answerDirect(operation, admission, services)
          : answerQueued(operation, admission, services)
        ).catch((error) => refusal({ error, body: admission.body }));

  send(admission.requester, answer);
  if (answer.rejected.length > 0 && 'caller' in admission)
    services.refusedObjects.note({
      ...{ requestId, workspaceId: admission.caller.workspaceId, keyId: admission.requester.keyId },
      ...{ operation: operation.id, body: admission.body, rejected: answer.rejected },
      // A direct operation adds no jobs, and the jobs of a repeated request have the id of the first one.
      accepted: operation.kind === 'direct' || answer.repeats !== undefined ? 0 : answer.accepted,
    });
  const milliseconds = performance.now() - started;
  const answered = { operation, request, requestId, answer, requester: admission.requester, milliseconds };
  inSpanOf(request, () => record(answered, services));

  function refusal({ error, body }: Pick<Refused, 'error' | 'body'>): Answer {
    return {
      reply: inSpanOf(request, () => toReply(error, { operation, requestId, log: services.log, body })),
      accepted: 0,
      rejected: rejectedIn(error),
      error: messageOf(error),
    };
  }

  function send({ allowance, ...requester }: Known, { reply, repeats = requestId, text }: Answer): void {
    const { contentType } = operation;
    const typed =
      contentType === undefined || reply.body === undefined
        ? reply
        : { ...reply, headers: { 'Content-Type': contentType, ...reply.headers } };
    sendJson(response, text === undefined ? typed : { ...typed, text }, {
      requestId: repeats,
      allowance,
      owner: requester.companyId ?? requester.workspaceId,
      responses: services.responses,
    });
  }
}

/** Returns the elements of the request that an error names. */
function rejectedIn(error: unknown): readonly Rejection[] {
  return error instanceof ApiError ? error.rejected : NONE_REJECTED;
}

/** Serves a request as part of its span, if the process traces. */
export function serveTraced(endpoint: Endpoint, exchange: Exchange, services: EdgeServices): Promise<void> {
  const span = tracing?.active();
  const { request, response } = exchange;
  if (span) request.span = span;
  const work = () => serve(endpoint, exchange, services);
  const needsStore = endpoint.operation.kind === 'direct' || request.headers['idempotency-key'] !== undefined;
  return needsStore ? traceThroughout(span, response, work) : work();
}

/** Runs work in the request's span, so that its log lines contain the span. */
function inSpanOf<Result>(request: RequestInHand, work: () => Result): Result {
  return tracing && request.span ? tracing.withSpan(request.span, work) : work();
}

/** A request that a stage has refused, and the results of earlier stages. */
interface Refused {
  error: unknown;
  /** Absent if the body has not been read. */
  body?: Record<string, Json> | undefined;
  requester: Known;
}

/** A request before the first stage. */
type Arrived = Omit<Exchange, 'response'> & { requestId: string };

/**
 * Runs the stages that decide whether a request may be executed, in order: authentication, room for its answer,
 * permission, load shedding, rate limit, its turn, body and validation, idempotency key. The first stage that refuses
 * the request returns or throws the reason, and later stages do not run.
 */
async function admit(
  endpoint: Endpoint,
  { request, requestId, params, query }: Arrived,
  services: EdgeServices,
): Promise<Admitted | Refused> {
  const { operation } = endpoint;
  const now = readClock();
  const address = clientAddress(request, services.config.TRUST_PROXY_HOPS);
  let requester: Known = {};
  let body: Record<string, Json> | undefined;
  try {
    // A result that is available already is not awaited, because awaiting costs as much as a stage.
    const authenticated = authenticate(operation, { request, address, now }, services);
    const key = authenticated instanceof Promise ? await authenticated : authenticated;
    requester = knownBy(key);
    request.arriving?.know();
    // Before the rate limit: its store may be unavailable, and a request that is refused here must not use it up.
    services.responses.requireRoom(key.companyId ?? key.workspaceId);
    const unwelcome = permit(operation, key) ?? shed(operation, key, services);
    if (unwelcome) return { error: unwelcome, requester };
    const taken = services.rateLimiter.take(key, operation.bucket);
    const allowance = taken instanceof Promise ? await taken : taken;
    requester = { ...requester, allowance };
    if (operation.auth !== 'scim') services.authenticator.count(key, operation.bucket, allowance.allowed);
    const limited = limit(allowance, { key, bucket: operation.bucket }, services);
    if (limited) return { error: limited, requester };
    const turn = operation.kind === 'queued' ? services.turns.turn(key.workspaceId) : undefined;
    if (turn) await turn;
    const sent = operation.body ? await readSent(operation, request, services) : {};
    body = spelled(operation, sent);
    const invalid = validate(endpoint, body, query);
    if (invalid) return { error: invalid, body, requester };
    // Fingerprint the body as sent. Unknown fields are ignored when the request is applied, but a body that differs
    // in them is still a different request.
    const again = request.headers['idempotency-key'];
    const ownerId = key.companyId ?? key.workspaceId;
    const idempotencyKey =
      again === undefined
        ? undefined
        : await readIdempotencyKey(again, { ownerId, operation, params, query, body: sent });
    const caller = callerOf(key, { requestId, address, now });
    return { request, requestId, address, caller, body, query, params, idempotencyKey, requester };
  } catch (error) {
    return { error, body, requester };
  }
}

type AnyKey = ApiKey & { companyId?: string };

/** Authenticates by the API key, or by the SCIM token of a company. */
function authenticate(
  operation: Operation,
  {
    request: { headers },
    address,
    now,
  }: { request: IncomingMessage; address: string | undefined; now: number },
  { authenticator, scimAuthenticator }: EdgeServices,
): AnyKey | Promise<AnyKey> {
  return operation.auth === 'scim'
    ? scimAuthenticator.authenticate(headers, address, now)
    : authenticator.authenticate(headers.authorization, address, now);
}

/** Omits the workspace for a company's token, whose `workspaceId` is the id of the company. */
function knownBy({ id, companyId, workspaceId }: AnyKey): Known {
  return {
    keyId: id,
    workspaceId: companyId === undefined ? workspaceId : undefined,
    companyId,
    allowance: undefined,
  };
}

function permit({ permission }: Operation, { permissions }: AnyKey): ApiError | undefined {
  if (permission !== undefined && !permissions.has(permission))
    return new ApiError('permissionMissing', { fact: `The API key lacks the permission \`${permission}\`.` });
}

/** Refuses an operation that stores something during overload. */
function shed(
  operation: Operation,
  { workspaceId }: AnyKey,
  services: EdgeServices,
): QueueUnavailable | undefined {
  if (!stores(operation)) return;
  const shard = services.queue.shardOf(workspaceId);
  const overload = services.loadShedding.overload(capacityOf(operation), { shard, workspaceId });
  if (overload) return new QueueUnavailable(overload.reason, { limit: overload.limit });
}

/** The capacity limit that applies to an operation. Bulk operations may fill only half of the queue. */
export function capacityOf(operation: Operation): 'queue' | 'half-full queue' | 'store' {
  if (operation.kind === 'direct') return 'store';
  return operation.isBulk ? 'half-full queue' : 'queue';
}

function limit(
  { allowed, limit, reset, retryAfter }: Allowance,
  { key, bucket }: { key: AnyKey; bucket: BucketName },
  { rateLimiter }: EdgeServices,
): ApiError | undefined {
  if (allowed) return undefined;
  const { windowSeconds } = rateLimiter.sizeOf(key, bucket);
  const owner = key.companyId === undefined ? 'workspace' : 'company';
  const free = new Date(reset * 1000).toISOString();
  return new ApiError('rateLimited', {
    fact: `The ${owner} has used its limit of ${limit} requests per ${windowSeconds} s in the bucket \`${bucket}\`; the next request is allowed at ${free}.`,
    headers: { 'Retry-After': String(retryAfter) },
  });
}

function readSent(
  { kind, maxBytes, tooLarge }: Operation,
  request: RequestInHand,
  { config, reading }: EdgeServices,
): Promise<Record<string, Json>> {
  requireJson(request);
  const byObject = kind === 'queued';
  const limit = Math.min(config.MAX_BODY_BYTES, maxBytes ?? config.MAX_BODY_BYTES);
  return readJsonObject(request, { limit, reading, byObject, tooLarge });
}

/** Normalizes the body to the names and the form of the operation. */
function spelled(operation: Operation, sent: Record<string, Json>): Record<string, Json> {
  return operation.body && operation.spell ? operation.spell(sent) : sent;
}

/** Returns the first rule that the body, or else the query, breaks. */
function validate(
  { operation, body: checkBody, query: checkQuery }: Endpoint,
  body: Record<string, Json>,
  query: Record<string, Json>,
): BadRequest | undefined {
  if (operation.body && checkBody && !checkBody(body)) return broken(checkBody.errors![0]!);
  if (checkQuery && !checkQuery(query)) return broken(checkQuery.errors![0]!);
}

function broken(error: ErrorObject): BadRequest {
  return new BadRequest(describeError(error), countOf(error));
}

/** Names the count and the limit of an array with too many elements. */
function countOf({ keyword, instancePath, data, params }: ErrorObject): string | undefined {
  if (keyword !== 'maxItems' || !Array.isArray(data)) return undefined;
  return `'${instancePath.slice(1)}' has ${data.length} elements; the limit is ${params.limit}.`;
}

function callerOf(
  { id, workspaceId, companyId, groups, blocked }: AnyKey,
  { requestId, address, now }: { requestId: string; address: string | undefined; now: number },
): Caller {
  const caller: Caller = {
    workspaceId,
    requestId,
    now,
    hasGroup: (id) => groups.has(id),
    channelOf: (id) => groups.get(id),
    isBlocked: (externalId) => blocked.has(externalId),
  };
  return companyId === undefined ? caller : { ...caller, companyId, scimToken: { id, address } };
}
