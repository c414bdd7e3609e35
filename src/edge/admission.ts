import type { IncomingHttpHeaders } from 'node:http';
import type { ErrorObject } from 'ajv';
import { ApiError, BadRequest } from '../errors.ts';
import type { Caller, Operation } from '../operations/operation.ts';
import { now as readClock } from '../platform/clock.ts';
import type { Json } from '../profile/json.ts';
import { describeError, type Validator } from '../schemas/compile.ts';
import type { BucketName } from '../schemas/limits.ts';
import type { Key } from '../store/idempotency-keys.ts';
import type { Channel } from '../store/subscription-states.ts';
import type { Authenticator, ScimAuthenticator } from './authenticate.ts';
import { readJsonObject, requireJson } from './body.ts';
import { readIdempotencyKey } from './idempotency-key.ts';
import type { ApiKey } from './key-cache.ts';
import type { Capacity } from './load-shedding.ts';
import type { Allowance, RateLimiter } from './rate-limit.ts';
import type { Reading } from './reading.ts';
import type { Known } from './reply.ts';
import { clientAddress, type Exchange, type RequestInHand } from './request.ts';
import type { Responses } from './responses.ts';
import type { Turns } from './turns.ts';
import { stores } from './unavailable.ts';

/** An operation with its validators, compiled at boot. */
export interface Endpoint {
  operation: Operation;
  /** Only for direct operations. */
  body: Validator | undefined;
  query: Validator | undefined;
}

/** A request before the first stage. */
type Arrived = Omit<Exchange, 'response'> & { requestId: string };

/** A request whose operation may be executed. */
export interface Admitted {
  request: RequestInHand;
  requestId: string;
  caller: Caller;
  body: Record<string, Json>;
  query: Record<string, Json>;
  params: Record<string, string>;
  /** Set if the request has an `Idempotency-Key`. */
  idempotencyKey: Key | undefined;
  requester: Known;
  /** Reads the subscription groups of the workspace from the store, past the cache. */
  renewGroups(): Promise<ReadonlyMap<string, Channel>>;
}

/** A request that a stage has refused, and the results of earlier stages. */
export interface Refused {
  error: unknown;
  /** Absent if the body has not been read. */
  body?: Record<string, Json> | undefined;
  requester: Known;
}

/** Authenticators of API keys and of the SCIM tokens of companies. */
interface Authenticators {
  api: Authenticator;
  scim: ScimAuthenticator;
}

/** Reads the bodies of operations, in the turns of their workspaces. */
export interface Bodies {
  turns: Turns;
  /** Admits large bodies. */
  reading: Reading;
  /** Maximum bytes of a body. An operation may have a lower limit. */
  maxBytes: number;
}

/** The stages before the execution of a request. */
export class Admission {
  readonly #authenticators: Authenticators;
  readonly #rateLimiter: RateLimiter;
  readonly #capacity: Capacity;
  readonly #responses: Pick<Responses, 'requireRoom'>;
  readonly #bodies: Bodies;
  readonly #proxyHops: number;

  constructor(stages: {
    authenticators: Authenticators;
    rateLimiter: RateLimiter;
    capacity: Capacity;
    responses: Pick<Responses, 'requireRoom'>;
    bodies: Bodies;
    /** Number of trusted proxies in front of the process. */
    proxyHops: number;
  }) {
    this.#authenticators = stages.authenticators;
    this.#rateLimiter = stages.rateLimiter;
    this.#capacity = stages.capacity;
    this.#responses = stages.responses;
    this.#bodies = stages.bodies;
    this.#proxyHops = stages.proxyHops;
  }

  /**
   * Runs the stages that decide whether a request may be executed, in order: authentication, room for its answer,
   * permission, load shedding, rate limit, its turn, body and validation, idempotency key. The first stage that refuses
   * the request returns or throws the reason, and later stages do not run.
   */
  async admit(
    endpoint: Endpoint,
    { request, requestId, params, query }: Arrived,
  ): Promise<Admitted | Refused> {
    const { operation } = endpoint;
    const now = readClock();
    const address = clientAddress(request, this.#proxyHops);
    const { api } = this.#authenticators;
    let requester: Known = {};
    let body: Record<string, Json> | undefined;
    try {
      // A result that is available already is not awaited, because awaiting costs as much as a stage.
      const credentials = { headers: request.headers, address, now };
      const authenticated = authenticate(operation, credentials, this.#authenticators);
      const key = authenticated instanceof Promise ? await authenticated : authenticated;
      const ownerId = key.companyId ?? key.workspaceId;
      requester = knownBy(key);
      request.arriving?.know();
      // Before the rate limit: its store may be unavailable, and a request that is refused here must not use it up.
      this.#responses.requireRoom(ownerId);
      const unwelcome = permit(operation, key) ?? shed(operation, key.workspaceId, this.#capacity);
      if (unwelcome) return { error: unwelcome, requester };
      const taken = this.#rateLimiter.take(key, operation.bucket);
      const allowance = taken instanceof Promise ? await taken : taken;
      requester = { ...requester, allowance };
      if (operation.auth !== 'scim') api.count(key, operation.bucket, allowance.allowed);
      const limited = limit(allowance, { key, bucket: operation.bucket }, this.#rateLimiter);
      if (limited) return { error: limited, requester };
      const turn = operation.kind === 'queued' ? this.#bodies.turns.turn(key.workspaceId) : undefined;
      if (turn) await turn;
      const sent = operation.body ? await readSent(operation, request, this.#bodies) : {};
      body = spelled(operation, sent);
      const invalid = validate(endpoint, body, query);
      if (invalid) return { error: invalid, body, requester };
      // Fingerprint the body as sent. Unknown fields are ignored when the request is applied, but a body that differs
      // in them is still a different request.
      const again = request.headers['idempotency-key'];
      const idempotencyKey =
        again === undefined
          ? undefined
          : await readIdempotencyKey(again, { ownerId, operation, params, query, body: sent });
      const caller = callerOf(key, { requestId, address, now });
      const renewGroups = async () => (await api.renew(request.headers.authorization, address, now)).groups;
      return { request, requestId, caller, body, query, params, idempotencyKey, requester, renewGroups };
    } catch (error) {
      return { error, body, requester };
    }
  }
}

type AnyKey = ApiKey & { companyId?: string };

interface Credentials {
  headers: IncomingHttpHeaders;
  /** Address of the client, as IP allowlists use it; undefined if the proxies do not report it. */
  address: string | undefined;
  now: number;
}

/** Authenticates by the API key, or by the SCIM token of a company. */
function authenticate(
  operation: Operation,
  { headers, address, now }: Credentials,
  { api, scim }: Authenticators,
): AnyKey | Promise<AnyKey> {
  return operation.auth === 'scim'
    ? scim.authenticate(headers, address, now)
    : api.authenticate(headers.authorization, address, now);
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
function shed(operation: Operation, workspaceId: string, capacity: Capacity): Error | undefined {
  return stores(operation) ? capacity.refusal(capacityOf(operation), workspaceId) : undefined;
}

/** The capacity limit that applies to an operation. Bulk operations may fill only half of the queue. */
export function capacityOf(operation: Operation): 'queue' | 'half-full queue' | 'store' {
  if (operation.kind === 'direct') return 'store';
  return operation.isBulk ? 'half-full queue' : 'queue';
}

function limit(
  { allowed, limit, reset, retryAfter }: Allowance,
  { key, bucket }: { key: AnyKey; bucket: BucketName },
  rateLimiter: Pick<RateLimiter, 'sizeOf'>,
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
  bodies: Pick<Bodies, 'reading' | 'maxBytes'>,
): Promise<Record<string, Json>> {
  requireJson(request);
  const byObject = kind === 'queued';
  const limit = Math.min(bodies.maxBytes, maxBytes ?? bodies.maxBytes);
  return readJsonObject(request, { limit, reading: bodies.reading, byObject, tooLarge });
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
