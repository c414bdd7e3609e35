import { ApiError, type ErrorName, type errors } from '../errors.ts';
import type { Operation } from '../operations/operation.ts';
import { RendererBusy } from '../preferences/renderer.ts';
import { QueueUnavailable } from '../queue/lanes.ts';
import { RedisUnavailable } from '../queue/open-redis.ts';
import { isPostgresUnavailable } from '../store/error-cause.ts';

type Unavailability = {
  [Name in ErrorName]: (typeof errors)[Name]['status'] extends 503 ? Name : never;
}[ErrorName];

/** The condition under which an operation can answer with a 503 of the catalogue, by the name of the error. */
const meets: Record<Unavailability, (operation: Operation) => boolean> = {
  queueUnavailable: (operation) => operation.kind === 'queued' || operation.readsQueue === true,
  queueFull: ({ kind }) => kind === 'queued',
  redisMemoryFull: ({ kind }) => kind === 'queued',
  tooManyPendingObjects: ({ kind }) => kind === 'queued',
  tooManyPendingBytes: ({ kind }) => kind === 'queued',
  workspaceOverShare: ({ kind }) => kind === 'queued',
  queueHalfFull: (operation) => operation.kind === 'queued' && operation.isBulk === true,
  tooManyBodyBytes: (operation) => operation.body !== undefined || stores(operation),
  serverBusy: (operation) => stores(operation) || (operation.kind === 'direct' && operation.isLarge === true),
  rendererBusy: (operation) => operation.kind === 'direct' && operation.renders === true,
  tooManyHeaderBytes: () => true,
  tooManyUnreadResponses: () => true,
  databaseUnavailable: () => true,
  redisUnavailable: () => true,
  unavailable: () => true,
  keyInUse: ({ method, readsOnly }) => method === 'POST' && !readsOnly,
};

/**
 * Lists every 503 that an operation can return. SCIM errors have no code, so `unavailable` represents all except
 * `keyInUse`.
 */
export function unavailabilities(operation: Operation): ErrorName[] {
  if (operation.auth === 'scim')
    return operation.method === 'POST' ? ['unavailable', 'keyInUse'] : ['unavailable'];
  return (Object.keys(meets) as Unavailability[]).filter((name) => meets[name](operation));
}

/** Returns whether an operation adds work, so that it is refused while too much work waits. */
export function stores({ kind, method, readsOnly }: Operation): boolean {
  return kind === 'queued' || (method !== 'GET' && !readsOnly);
}

/** The errors for the limits of the queue and of the web process, by the name of the limit. */
const OVER_LIMIT: Readonly<Record<string, Unavailability>> = {
  share: 'workspaceOverShare',
  half: 'queueHalfFull',
  queue_depth: 'queueFull',
  redis_memory: 'redisMemoryFull',
  event_loop_lag: 'serverBusy',
  reading_bytes: 'tooManyBodyBytes',
  small_bodies_bytes: 'tooManyBodyBytes',
  response_bytes: 'tooManyUnreadResponses',
  pending_objects: 'tooManyPendingObjects',
  pending_bytes: 'tooManyPendingBytes',
};

/** Returns the error of the catalogue for a temporary failure. */
export function whyUnavailable(error: unknown): ErrorName {
  if (error instanceof QueueUnavailable)
    return error.limit === undefined ? 'queueUnavailable' : (OVER_LIMIT[error.limit] ?? 'unavailable');
  if (error instanceof RendererBusy) return 'rendererBusy';
  if (error instanceof ApiError) return error.entry;
  return error instanceof RedisUnavailable ? 'redisUnavailable' : 'databaseUnavailable';
}

/** Returns whether the same request is likely to succeed soon. */
export function isUnavailable(error: unknown): boolean {
  return (
    error instanceof QueueUnavailable ||
    error instanceof RendererBusy ||
    error instanceof RedisUnavailable ||
    (error instanceof ApiError && error.status === 503) ||
    isPostgresUnavailable(error)
  );
}
