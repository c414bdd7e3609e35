import type { IncomingMessage } from 'node:http';
import { ApiError, BadRequest } from '../errors.ts';
import type { Caller, Operation } from '../operations/operation.ts';
import type { Json } from '../profile/json.ts';
import { QueueUnavailable } from '../queue/lanes.ts';
import { describeError } from '../schemas/compile.ts';
import type { Key } from '../store/idempotency/key.ts';
import { readJsonObject, requireJson } from './body.ts';
import { clientAddress } from './client-address.ts';
import { readIdempotencyKey } from './idempotency-key.ts';
import type { ApiKey } from './known-keys.ts';
import type { Outcome } from './outcome.ts';
import type { Allowance } from './rate-limit.ts';
import type { EdgeServices, Endpoint } from './services.ts';

/** A request whose operation may be carried out. */
export interface Admitted {
  request: IncomingMessage;
  requestId: string;
  /** Whom it came from, as IP allowlists see it. */
  address: string;
  caller: Caller;
  body: Record<string, Json>;
  query: Record<string, Json>;
  params: Record<string, string>;
  /** Of a request that has an `Idempotency-Key`. */
  idempotent: Key | undefined;
  outcome: Outcome;
}

/** What is known of a request before anybody has looked at it. */
export interface Arrived {
  request: IncomingMessage;
  requestId: string;
  /** Path parameters. */
  params: Record<string, string>;
  /** Parsed query string. */
  query: Record<string, Json>;
  outcome: Outcome;
}

/**
 * Each stage before a request may be carried out, in order: who sends it, may they, is there too much to do, are they
 * within their limit, what do they say, have they said it before.
 *
 * @throws {ApiError | BadRequest | QueueUnavailable} at the first stage that refuses the request
 */
export async function admit(
  endpoint: Endpoint,
  { request, requestId, params, query, outcome }: Arrived,
  services: EdgeServices,
): Promise<Admitted> {
  const { operation } = endpoint;
  const now = Date.now();
  const address = clientAddress(request, services.config.TRUST_PROXY_HOPS);

  const key = await authenticate(operation, request, address, now, services);
  if (key.companyId === undefined) outcome.workspaceId = key.workspaceId;
  outcome.companyId = key.companyId;
  permit(operation, key);
  // Before the rate limit, which asks a Redis that may be in trouble, and counts what is not refused.
  shed(operation, services);
  const allowance = await services.rateLimiter.take(key, operation.bucket);
  outcome.allowance = allowance;
  limit(allowance);

  const body = operation.body ? shaped(endpoint, await readSent(request, services)) : {};
  const { query: checkQuery } = endpoint;
  if (checkQuery && !checkQuery(query)) throw new BadRequest(describeError(checkQuery.errors![0]!));
  const sent = request.headers['idempotency-key'];
  const ownerId = key.companyId ?? key.workspaceId;
  const idempotent =
    sent === undefined
      ? undefined
      : await readIdempotencyKey(sent, { ownerId, operation, params, query, body });
  const caller = callerOf(key, requestId, now);
  return { request, requestId, address, caller, body, query, params, idempotent, outcome };
}

type AnyKey = ApiKey & { companyId?: string };

/** By the API key, or by the token of a company. */
function authenticate(
  operation: Operation,
  { headers }: IncomingMessage,
  address: string,
  now: number,
  { authenticator, scimAuthenticator }: EdgeServices,
): Promise<AnyKey> {
  return operation.auth === 'scim'
    ? scimAuthenticator.authenticate(headers, address, now)
    : authenticator.authenticate(headers.authorization, address, now);
}

function permit({ permission }: Operation, { permissions }: AnyKey): void {
  if (permission !== undefined && !permissions.has(permission)) throw new ApiError('accessDenied');
}

/** What leaves something behind is refused while there is too much to do. */
function shed(operation: Operation, services: EdgeServices): void {
  if (!stores(operation)) return;
  const overload = services.overload(operation.kind === 'queued' ? 'queue' : 'store');
  if (overload) throw new QueueUnavailable(overload);
}

function stores({ kind, method, readsOnly }: Operation): boolean {
  return kind === 'queued' || (method !== 'GET' && !readsOnly);
}

function limit({ allowed, retryAfter }: Allowance): void {
  if (!allowed) throw new ApiError('rateLimited', undefined, { 'Retry-After': String(retryAfter) });
}

function readSent(
  request: IncomingMessage,
  { config, reading }: EdgeServices,
): Promise<Record<string, Json>> {
  requireJson(request);
  return readJsonObject(request, { limit: config.MAX_BODY_BYTES, reading });
}

/** The body in the names and the shape of the operation. */
function shaped({ operation, body: check }: Endpoint, sent: Record<string, Json>): Record<string, Json> {
  const body = operation.spell ? operation.spell(sent) : sent;
  if (check && !check(body)) throw new BadRequest(describeError(check.errors![0]!));
  return body;
}

function callerOf(
  { workspaceId, companyId, groups, blocked }: AnyKey,
  requestId: string,
  now: number,
): Caller {
  return {
    workspaceId,
    ...(companyId !== undefined && { companyId }),
    requestId,
    now,
    hasGroup: (id) => groups.has(id),
    channelOf: (id) => groups.get(id),
    isBlocked: (externalId) => blocked.has(externalId),
  };
}
