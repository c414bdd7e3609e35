import type { IncomingMessage } from 'node:http';
import type { Rejection } from '../errors.ts';
import type { AcceptedObject } from '../jobs/envelope.ts';
import type {
  Caller,
  DirectOperation,
  Operation,
  Plan,
  QueuedOperation,
  Reply,
} from '../operations/operation.ts';
import { type Json, jsonBytesAtLeast } from '../profile/json.ts';
import type { Key } from '../store/idempotency-keys.ts';
import type { Admitted } from './admission.ts';
import { createSlices } from './body.ts';

/** The effects of an admitted request, and its answer. */
export type RequestPlan = EnqueuePlan | ReadPlan | ChangePlan;

/** Adds the objects of the request to the lanes, and answers when they are on disk. */
export interface EnqueuePlan {
  kind: 'enqueue';
  /** Key under which the request takes effect once: its envelopes are stored in the outbox before they are added. */
  once: Key | undefined;
  /** Milliseconds for which the answer waits until the objects have taken effect; undefined: it does not wait. */
  waitMs: number | undefined;
  /** @throws {ApiError} if no object of the request is valid */
  planObjects(): ObjectsPlan | Promise<ObjectsPlan>;
}

/** The objects of a request, and the answer that is sent when they are on disk. */
export interface ObjectsPlan {
  /** Objects for the lanes. */
  objects: AcceptedObject[];
  /** Approximate bytes of the JSON text of `objects`. */
  bytes: number;
  /** Objects that are refused now. The workers may refuse others. */
  rejected: readonly Rejection[];
  /** Whether the answer waits for an effect of the objects. */
  isAwaited: boolean;
  answer: PlannedAnswer;
}

/**
 * The source of the answer: the plan, the store once the objects have taken effect in time, or the outcomes of the
 * objects. `reply` is the answer if the other source is not available in time.
 */
export type PlannedAnswer =
  | { from: 'plan'; reply: Reply }
  | { from: 'store'; reply: Reply; readBack: NonNullable<Plan['readBack']> }
  | { from: 'outcomes'; reply: Reply; replyOf: NonNullable<Plan['replyOf']> };

/** Reads the store, and serializes the answer at once, because a large one uses memory. */
export interface ReadPlan {
  kind: 'read';
  operation: DirectOperation;
  /** Key of a request that is executed each time. Its body must be equal to the first body with the key. */
  checked: Key | undefined;
  /** Whether the request takes a turn among the requests with large answers. */
  isLarge: boolean;
  /** Whether the request takes a turn among the requests of SCIM connectors. */
  isScim: boolean;
}

/** Changes the store before the answer. */
export interface ChangePlan {
  kind: 'change';
  operation: DirectOperation;
  /** Key under which the request takes effect once. */
  once: Key | undefined;
  /** Whether the request takes a turn among the requests of SCIM connectors. */
  isScim: boolean;
}

/**
 * Plans an admitted request: whether it goes to the lanes or to the store, which objects are accepted and refused,
 * whether it takes effect once, whether the answer waits for the effect, and the source of the answer.
 */
export function planRequest(operation: Operation, admitted: Admitted): RequestPlan {
  const { request, idempotencyKey: key } = admitted;
  if (operation.kind === 'direct') {
    const isScim = operation.auth === 'scim';
    if (operation.readsOnly || operation.method === 'GET')
      return { kind: 'read', operation, checked: key, isLarge: operation.isLarge === true, isScim };
    return { kind: 'change', operation, once: key, isScim };
  }
  const waitMs = operation.readBackWithin;
  const withAnswer = ({ objects, rejected, reply, readBack, replyOf }: Plan): ObjectsPlan => ({
    objects,
    bytes: bytesOf(request, objects),
    rejected,
    isAwaited: waitMs !== undefined || replyOf !== undefined,
    answer: readBack
      ? { from: 'store', reply, readBack }
      : replyOf
        ? { from: 'outcomes', reply, replyOf }
        : { from: 'plan', reply },
  });
  return {
    kind: 'enqueue',
    once: key,
    waitMs,
    // With a key, this is called only if the key is new. A repeated request gets the stored answer, even if it would be
    // refused today.
    planObjects() {
      const plan = planWithGroups(operation, admitted);
      return plan instanceof Promise ? plan.then(withAnswer) : withAnswer(plan);
    },
  };
}

/**
 * Plans the objects of a request with the cached subscription groups. If it contains an unknown group id, plans again
 * with the groups in the store, because the group may have been created a second ago.
 *
 * @throws the refusal of the request
 */
export function planWithGroups(
  operation: QueuedOperation,
  { caller, body, renewGroups }: Pick<Admitted, 'caller' | 'body' | 'renewGroups'>,
): Plan | Promise<Plan> {
  const missed: string[] = [];
  const channelOf = (id: string) => {
    const channel = caller.channelOf(id);
    if (channel === undefined) missed.push(id);
    return channel;
  };
  let planned: Plan | Promise<Plan>;
  try {
    planned = planIn(operation, withChannels(caller, channelOf), body);
  } catch (refusal) {
    if (missed.length === 0) throw refusal;
    planned = Promise.reject(refusal);
  }
  if (missed.length === 0 && !(planned instanceof Promise)) return planned;
  return orWithRenewedGroups(planned);

  async function orWithRenewedGroups(first: Plan | Promise<Plan>): Promise<Plan> {
    await Promise.allSettled([first]);
    if (missed.length === 0) return first;
    const groups = await renewGroups();
    if (!missed.some((id) => groups.has(id))) return first;
    return planIn(
      operation,
      withChannels(caller, (id) => groups.get(id)),
      body,
    );
  }
}

/** The caller of a queued operation with other groups. It always has an API key. */
function withChannels(
  { workspaceId, requestId, now, isBlocked }: Caller,
  channelOf: Caller['channelOf'],
): Caller {
  const hasGroup = (id: string) => channelOf(id) !== undefined;
  return { workspaceId, requestId, now, hasGroup, channelOf, isBlocked };
}

/**
 * Plans step by step if the operation supports it, so that a large request does not block others. A plan with a
 * single step is returned synchronously.
 */
function planIn(
  operation: QueuedOperation,
  caller: Caller,
  body: Record<string, Json>,
): Plan | Promise<Plan> {
  const steps = operation.steps?.(caller, body);
  if (!steps) return operation.plan(caller, body);
  const first = steps.next();
  return first.done ? first.value : planOn(steps);
}

async function planOn(steps: Generator<void, Plan>): Promise<Plan> {
  const yieldIfLong = createSlices();
  for (let step = steps.next(); ; step = steps.next()) {
    if (step.done) return step.value;
    const pause = yieldIfLong();
    if (pause) await pause;
  }
}

/**
 * Approximate bytes of the JSON text of a request's accepted objects: the length of its body, from its header. If the
 * body is compressed or has no length, the objects are measured.
 */
function bytesOf({ headers }: IncomingMessage, objects: AcceptedObject[]): number {
  if (headers['content-length'] !== undefined && headers['content-encoding'] === undefined) {
    return Number(headers['content-length']);
  }
  return objects.reduce((bytes, object) => bytes + jsonBytesAtLeast(object as unknown as Json), 0);
}
