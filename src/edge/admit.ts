import type { IncomingMessage } from 'node:http';
import { ApiError, BadRequest } from '../errors.ts';
import type { Caller, Operation } from '../operations/operation.ts';
import type { Json } from '../profile/json.ts';
import { QueueUnavailable } from '../queue/lanes.ts';
import { describeError } from '../schemas/compile.ts';
import type { Key } from '../store/idempotency-keys.ts';
import { readJsonObject, requireJson } from './body.ts';
import { readIdempotencyKey } from './idempotency.ts';
import type { ApiKey } from './key-cache.ts';
import type { Allowance } from './rate-limit.ts';
import type { Known } from './reply.ts';
import { clientAddress, type Exchange, type RequestInHand } from './request.ts';
import type { EdgeServices, Endpoint } from './services.ts';

/** A request whose operation may be carried out. */
export interface Admitted {
  request: IncomingMessage;
  requestId: string;
  /** Whom it came from, as IP allowlists see it; nothing where the proxies do not say. */
  address: string | undefined;
  caller: Caller;
  body: Record<string, Json>;
  query: Record<string, Json>;
  params: Record<string, string>;
  /** Of a request that has an `Idempotency-Key`. */
  idempotencyKey: Key | undefined;
  known: Known;
}

/** A request that a stage has refused, and what the stages before it have found. */
export interface Refused {
  error: unknown;
  known: Known;
}

/** What is known of a request before anybody has looked at it. */
export type Arrived = Omit<Exchange, 'response'> & { requestId: string };

/**
 * Each stage before a request may be carried out, in order. Who sends it, and may they? Is there too much to do, are
 * they within their limit, is it their turn? What do they say, and by which key would they say it again? The first
 * stage that refuses it is the last.
 */
export async function admit(
  endpoint: Endpoint,
  { request, requestId, params, query }: Arrived,
  services: EdgeServices,
): Promise<Admitted | Refused> {
  const { operation } = endpoint;
  const now = Date.now();
  const address = clientAddress(request, services.config.TRUST_PROXY_HOPS);
  let known: Known = {};
  try {
    // What is known already is not waited for: a wait costs a request as much as a rule.
    const found = authenticate(operation, { request, address, now }, services);
    const key = found instanceof Promise ? await found : found;
    known = knownBy(key);
    (request as RequestInHand).arriving?.know();
    permit(operation, key);
    // Before the rate limit, which asks a Redis that may be in trouble, and counts what is not refused.
    shed(operation, key, services);
    const taken = services.rateLimiter.take(key, operation.bucket);
    const allowance = taken instanceof Promise ? await taken : taken;
    known.allowance = allowance;
    if (operation.auth !== 'scim') services.authenticator.count(key, operation.bucket, allowance.allowed);
    limit(allowance);
    const turn = operation.kind === 'queued' ? services.turns.turn(key.workspaceId) : undefined;
    if (turn) await turn;
    const sent = operation.body ? await readSent(operation, request, services) : {};
    const body = validate(endpoint, sent, query);
    // Of the body as it was sent: an operation passes over what it does not know, and the request is another all the same.
    const again = request.headers['idempotency-key'];
    const ownerId = key.companyId ?? key.workspaceId;
    const idempotencyKey =
      again === undefined
        ? undefined
        : await readIdempotencyKey(again, { ownerId, operation, params, query, body: sent });
    const caller = callerOf(key, { requestId, address, now });
    return { request, requestId, address, caller, body, query, params, idempotencyKey, known };
  } catch (error) {
    return { error, known };
  }
}

type AnyKey = ApiKey & { companyId?: string };

/** By the API key, or by the token of a company. */
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

/** The workspace of a company's token says nothing of the request. */
function knownBy({ id, companyId, workspaceId }: AnyKey): Known {
  return {
    keyId: id,
    workspaceId: companyId === undefined ? workspaceId : undefined,
    companyId,
    allowance: undefined,
  };
}

function permit({ permission }: Operation, { permissions }: AnyKey): void {
  if (permission !== undefined && !permissions.has(permission)) throw new ApiError('accessDenied');
}

/** What leaves something behind is refused while there is too much to do. */
function shed(operation: Operation, { workspaceId }: AnyKey, services: EdgeServices): void {
  if (!stores(operation)) return;
  const through = placeOf(operation, services.queue.isFlooding(workspaceId));
  const reason = services.loadShedding.reason(through, services.queue.shardOf(workspaceId));
  if (reason) throw new QueueUnavailable(reason);
}

/** What an operation fills. Who floods, and what gives way to others, leaves half of the queue to them. */
export function placeOf(operation: Operation, isFlooding: boolean): 'queue' | 'half-full queue' | 'store' {
  if (operation.kind === 'direct') return 'store';
  return operation.givesWay || isFlooding ? 'half-full queue' : 'queue';
}

function stores({ kind, method, readsOnly }: Operation): boolean {
  return kind === 'queued' || (method !== 'GET' && !readsOnly);
}

function limit({ allowed, retryAfter }: Allowance): void {
  if (!allowed) throw new ApiError('rateLimited', undefined, { 'Retry-After': String(retryAfter) });
}

function readSent(
  { kind, maxBytes }: Operation,
  request: IncomingMessage,
  { config, reading }: EdgeServices,
): Promise<Record<string, Json>> {
  requireJson(request);
  const byObject = kind === 'queued';
  const limit = Math.min(config.MAX_BODY_BYTES, maxBytes ?? config.MAX_BODY_BYTES);
  return readJsonObject(request as RequestInHand, { limit, reading, byObject });
}

/** The body in the names and the shape of the operation, once it and the query are as their schemas say. */
function validate(
  { operation, body: checkBody, query: checkQuery }: Endpoint,
  sent: Record<string, Json>,
  query: Record<string, Json>,
): Record<string, Json> {
  const body = operation.body && operation.spell ? operation.spell(sent) : sent;
  if (operation.body && checkBody && !checkBody(body))
    throw new BadRequest(describeError(checkBody.errors![0]!));
  if (checkQuery && !checkQuery(query)) throw new BadRequest(describeError(checkQuery.errors![0]!));
  return body;
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
