import type { IncomingMessage } from 'node:http';
import { type Rejection, rejectionOf } from '../errors.ts';
import type { AcceptedObject, EnvelopeRequest } from '../jobs/envelope.ts';
import { inputArrayOf } from '../jobs/traces.ts';
import type {
  Caller,
  DirectOperation,
  Plan,
  QueuedOperation,
  Reply,
  Resources,
} from '../operations/operation.ts';
import { isoTime } from '../platform/format.ts';
import { messageOf } from '../platform/log.ts';
import { presentTrace, tracing } from '../platform/tracing.ts';
import { type Json, jsonBytesAtLeast } from '../profile/json.ts';
import { UNDECIDED } from '../queue/effects.ts';
import type { LaneEntry } from '../queue/lanes.ts';
import { envelopesOf } from '../queue/pack.ts';
import { refusalByWorker } from '../store/external-id-refusals.ts';
import type { Key } from '../store/idempotency-keys.ts';
import type { Channel } from '../store/subscription-states.ts';
import { createSlices } from './body.ts';
import { directAttempt, idempotentAnswer, queuedAttempt } from './idempotency.ts';
import { type Answer, answerOf, type Known } from './reply.ts';
import { aboutRequest, type RequestInHand } from './request.ts';
import type { EdgeServices } from './services.ts';

/** A request whose operation may be executed. */
export interface Admitted {
  request: RequestInHand;
  requestId: string;
  /** Address of the client, as IP allowlists use it; undefined if the proxies do not report it. */
  address: string | undefined;
  caller: Caller;
  body: Record<string, Json>;
  query: Record<string, Json>;
  params: Record<string, string>;
  /** Set if the request has an `Idempotency-Key`. */
  idempotencyKey: Key | undefined;
  requester: Known;
}

/** Adds the objects of an operation to the queue. The answer waits until they are on disk. */
export async function answerQueued(
  operation: QueuedOperation,
  admitted: Admitted,
  services: EdgeServices,
): Promise<Answer> {
  const { request, requestId, caller, idempotencyKey, requester } = admitted;
  const { queue } = services;
  const envelopeRequest: EnvelopeRequest = {
    request_id: requestId,
    workspace_id: caller.workspaceId,
    accepted_at: isoTime(caller.now),
    key_id: requester.keyId,
    ...(tracing && presentTrace(request.span)),
  };
  const answer = (plan: Plan, entries: LaneEntry[]) =>
    answerAfterEffects(
      { operation, plan, envelopeIds: () => envelopesOf(envelopeRequest, entries) },
      services,
    );
  if (idempotencyKey) {
    const attempt = queuedAttempt({
      queue,
      request: envelopeRequest,
      makePlan: async () => makePlan(operation, admitted, services),
      bytesOf: (objects) => bytesOf(request, objects),
      answer,
      waits: operation.readBackWithin !== undefined,
    });
    return idempotentAnswer(services.idempotency.perform(idempotencyKey, attempt), requestId);
  }

  const made = makePlan(operation, admitted, services);
  const plan = made instanceof Promise ? await made : made;
  const isAwaited = operation.readBackWithin !== undefined || plan.replyOf !== undefined;
  const bytes = bytesOf(request, plan.objects);
  const entries = await queue.enqueue(envelopeRequest, plan.objects, { bytes, isAwaited });
  return answer(plan, entries);
}

function makePlan(
  operation: QueuedOperation,
  admitted: Admitted,
  { authenticator }: EdgeServices,
): Plan | Promise<Plan> {
  return planWithGroups(operation, admitted, async () => {
    const { request, address, caller } = admitted;
    const { groups } = await authenticator.renew(request.headers.authorization, address, caller.now);
    return groups;
  });
}

/**
 * Plans a request with the cached subscription groups. If it contains an unknown group id, plans again with the
 * groups in the store, because the group may have been created a second ago.
 */
export function planWithGroups(
  operation: QueuedOperation,
  received: Pick<Admitted, 'caller' | 'body'>,
  renewGroups: () => Promise<ReadonlyMap<string, Channel>>,
): Plan | Promise<Plan> {
  const planned = planNoting(operation, received);
  const settle = (one: Planned) => planOf(operation, received, { planned: one, renewGroups });
  return planned instanceof Promise ? planned.then(settle) : settle(planned);
}

/** The result of planning, and the group ids that were not in the cache. */
type Planned = { missed: string[] } & ({ plan: Plan } | { refusal: unknown });

/** Plans with the cached groups. */
function planNoting(
  operation: QueuedOperation,
  { caller, body }: Pick<Admitted, 'caller' | 'body'>,
): Planned | Promise<Planned> {
  const missed: string[] = [];
  const channelOf = (id: string) => {
    const channel = caller.channelOf(id);
    if (channel === undefined) missed.push(id);
    return channel;
  };
  const hasGroup = (id: string) => channelOf(id) !== undefined;
  try {
    const plan = planIn(operation, withGroups(caller, { hasGroup, channelOf }), body);
    if (!(plan instanceof Promise)) return { plan, missed };
    return plan.then(
      (made) => ({ plan: made, missed }),
      (refusal: unknown) => ({ refusal, missed }),
    );
  } catch (refusal) {
    return { refusal, missed };
  }
}

/**
 * Returns the plan, or plans again if a missing group is now in the store.
 * @throws the refusal if there is no plan
 */
function planOf(
  operation: QueuedOperation,
  received: Pick<Admitted, 'caller' | 'body'>,
  { planned, renewGroups }: { planned: Planned; renewGroups: () => Promise<ReadonlyMap<string, Channel>> },
): Plan | Promise<Plan> {
  const { missed } = planned;
  if (missed.length > 0)
    return planAgain(operation, received, { missed, renewGroups }).then(
      (renewed) => renewed ?? planOrThrow(planned),
    );
  return planOrThrow(planned);
}

function planOrThrow(planned: Planned): Plan {
  if ('refusal' in planned) throw planned.refusal;
  return planned.plan;
}

/** @returns undefined if the store has none of the missing groups */
async function planAgain(
  operation: QueuedOperation,
  { caller, body }: Pick<Admitted, 'caller' | 'body'>,
  { missed, renewGroups }: { missed: string[]; renewGroups: () => Promise<ReadonlyMap<string, Channel>> },
): Promise<Plan | undefined> {
  const groups = await renewGroups();
  if (!missed.some((id) => groups.has(id))) return undefined;
  const renewed = { hasGroup: (id: string) => groups.has(id), channelOf: (id: string) => groups.get(id) };
  return planIn(operation, withGroups(caller, renewed), body);
}

/** The caller of a queued operation with other groups. It always has an API key. */
function withGroups(
  { workspaceId, requestId, now, isBlocked }: Caller,
  { hasGroup, channelOf }: Pick<Caller, 'hasGroup' | 'channelOf'>,
): Caller {
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

interface Stored {
  operation: QueuedOperation;
  plan: Plan;
  /** Ids of the envelopes that hold its objects. */
  envelopeIds(): string[];
}

/**
 * Answers when the objects are on disk. Some operations wait until the objects have taken effect, or report their
 * outcomes.
 */
async function answerAfterEffects(
  { operation: { readBackWithin }, plan, envelopeIds }: Stored,
  { effects, resources }: EdgeServices,
): Promise<Answer> {
  const answer: Answer = { reply: plan.reply, accepted: plan.objects.length, rejected: plan.rejected };
  const isLate = readBackWithin !== undefined && !(await effects.awaited(envelopeIds(), readBackWithin));
  if (plan.readBack && !isLate) return { ...answer, ...(await readBack(plan.readBack, resources)) };
  if (!plan.replyOf) return isLate ? { ...answer, error: UNDECIDED } : answer;
  const ids = plan.objects.map(({ id }) => id);
  const ended = await effects.outcomes(ids);
  if ('unknown' in ended) return { ...answer, error: ended.unknown };
  const rejected = [...plan.rejected, ...refusedByWorkers(plan, ended.errors)];
  return { ...answer, reply: plan.replyOf(ended.errors), rejected };
}

/** Never rejects: the objects are stored, and a client that got an error would send them again. */
async function readBack(
  read: NonNullable<Plan['readBack']>,
  resources: Resources,
): Promise<Pick<Answer, 'reply'> | Pick<Answer, 'error'>> {
  try {
    return { reply: await read(resources) };
  } catch (error) {
    return { error: messageOf(error) };
  }
}

/** Accepted objects that the workers have refused, with the texts of the reply. */
function refusedByWorkers({ objects }: Plan, errors: ReadonlyMap<string, string>): Rejection[] {
  return objects.flatMap((object) => {
    const error = errors.get(object.id);
    if (error === undefined) return [];
    const position = { input_array: inputArrayOf(object) ?? object.kind, index: object.index };
    return [rejectionOf(refusalByWorker(object, error), position)];
  });
}

/** Executes an operation that reads or changes the store while its caller waits. */
export async function answerDirect(
  operation: DirectOperation,
  admitted: Admitted,
  services: EdgeServices,
): Promise<Answer> {
  const { request, requestId, caller, body, query, params, idempotencyKey } = admitted;
  const { config, resources, idempotency, scimSemaphore } = services;
  const input = { body, query, params, request: aboutRequest(request, config) };
  const handle = (as: string) => {
    const work = () => operation.handle({ ...caller, requestId: as }, input, resources);
    return operation.auth === 'scim' ? scimSemaphore.use(caller.workspaceId, work) : work();
  };
  if (idempotencyKey && operation.readsOnly) await idempotency.read(idempotencyKey, requestId);
  const isRead = operation.readsOnly || operation.method === 'GET';
  if (isRead) return answerRead(operation, caller, { read: () => handle(requestId), services });
  if (!idempotencyKey) return answerOf(await handle(requestId));
  return idempotentAnswer(idempotency.perform(idempotencyKey, directAttempt(requestId, handle)), requestId);
}

/**
 * Reads and serializes the answer. A large answer does both in its turn of the semaphore, because both use memory.
 */
function answerRead(
  { isLarge }: DirectOperation,
  { companyId, workspaceId }: Caller,
  { read, services: { largeSemaphore, responses } }: { read(): Promise<Reply>; services: EdgeServices },
): Promise<Answer> {
  const owner = companyId ?? workspaceId;
  const work = async () => {
    responses.requireLargeRoom(owner);
    const reply = await read();
    const { body, parts } = reply;
    if (body === undefined && !parts) return answerOf(reply);
    return {
      ...answerOf(reply),
      text: await responses.encode(parts ?? body!, { owner, isLarge: isLarge === true }),
    };
  };
  return isLarge ? largeSemaphore.use(owner, work) : work();
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
