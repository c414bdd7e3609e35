import type { EnvelopeRequest } from '../jobs/envelope.ts';
import type { Caller, DirectOperation, Plan, QueuedOperation } from '../operations/operation.ts';
import { isoTime } from '../platform/iso-time.ts';
import { presentTrace, tracing } from '../platform/tracing.ts';
import type { Json } from '../profile/json.ts';
import { UNDECIDED } from '../queue/effects.ts';
import type { LaneEntry } from '../queue/lanes.ts';
import { envelopesOf } from '../queue/pack.ts';
import type { Channel } from '../store/subscription-states.ts';
import type { Admitted } from './admit.ts';
import { bytesOf, createSlices } from './body.ts';
import { directAttempt, idempotentAnswer, queuedAttempt } from './idempotency.ts';
import { type Answer, answerOf } from './reply.ts';
import { aboutRequest, type RequestInHand } from './request.ts';
import type { EdgeServices } from './services.ts';

/** Puts the objects of an operation into the queue; the answer waits for the disk. */
export async function answerQueued(
  operation: QueuedOperation,
  admitted: Admitted,
  services: EdgeServices,
): Promise<Answer> {
  const { request, requestId, caller, idempotencyKey, known } = admitted;
  const { queue } = services;
  const envelopeRequest: EnvelopeRequest = {
    request_id: requestId,
    workspace_id: caller.workspaceId,
    accepted_at: isoTime(caller.now),
    key_id: known.keyId,
  };
  if (tracing) Object.assign(envelopeRequest, presentTrace((request as RequestInHand).span));
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
  const entries = await queue.enqueue(envelopeRequest, plan.objects, bytesOf(request, plan.objects));
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
 * Plans with the subscription groups that the edge remembers. When the request names one that it does not know, plans
 * again with those of the store, since the group may have been made a second ago.
 */
export function planWithGroups(
  operation: QueuedOperation,
  asked: Pick<Admitted, 'caller' | 'body'>,
  renewGroups: () => Promise<ReadonlyMap<string, Channel>>,
): Plan | Promise<Plan> {
  const { caller, body } = asked;
  const missed: string[] = [];
  const channelOf = (id: string) => {
    const channel = caller.channelOf(id);
    if (channel === undefined) missed.push(id);
    return channel;
  };
  const again = () => planAgain(operation, asked, { missed, renewGroups });
  const finish = (plan: Plan) => (missed.length === 0 ? plan : again().then((renewed) => renewed ?? plan));
  const refuse = (refusal: unknown): Promise<Plan> =>
    again().then((renewed) => renewed ?? Promise.reject(refusal));
  try {
    const hasGroup = (id: string) => channelOf(id) !== undefined;
    const planned = planIn(operation, withGroups(caller, { hasGroup, channelOf }), body);
    return planned instanceof Promise ? planned.then(finish, refuse) : finish(planned);
  } catch (refusal) {
    if (missed.length === 0) throw refusal;
    return refuse(refusal);
  }
}

/** @returns nothing where the store knows no group of those that were missed */
async function planAgain(
  operation: QueuedOperation,
  { caller, body }: Pick<Admitted, 'caller' | 'body'>,
  { missed, renewGroups }: { missed: string[]; renewGroups: () => Promise<ReadonlyMap<string, Channel>> },
): Promise<Plan | undefined> {
  if (missed.length === 0) return undefined;
  const groups = await renewGroups();
  if (!missed.some((id) => groups.has(id))) return undefined;
  const renewed = { hasGroup: (id: string) => groups.has(id), channelOf: (id: string) => groups.get(id) };
  return planIn(operation, withGroups(caller, renewed), body);
}

/** Of a queued operation, whose caller has an API key. */
function withGroups(
  { workspaceId, requestId, now, isBlocked }: Caller,
  { hasGroup, channelOf }: Pick<Caller, 'hasGroup' | 'channelOf'>,
): Caller {
  return { workspaceId, requestId, now, hasGroup, channelOf, isBlocked };
}

/** Step by step, where the operation has steps: a large request holds nobody up. One of a step is planned at once. */
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
  /** Of the envelopes that hold its objects. */
  envelopeIds(): string[];
}

/** The answer when the objects are on disk; some wait until these have taken effect, or say how they ended. */
async function answerAfterEffects(
  { operation: { readBackWithin }, plan, envelopeIds }: Stored,
  { effects }: EdgeServices,
): Promise<Answer> {
  const answer: Answer = { reply: plan.reply, accepted: plan.objects.length, rejected: plan.rejected };
  const isLate = readBackWithin !== undefined && !(await effects.awaited(envelopeIds(), readBackWithin));
  if (!plan.replyOf) return isLate ? { ...answer, error: UNDECIDED } : answer;
  const ids = plan.objects.map(({ id }) => id);
  const ended = await effects.outcomes(ids);
  return 'errors' in ended
    ? { ...answer, reply: plan.replyOf(ended.errors) }
    : { ...answer, error: ended.unknown };
}

/** Carries out an operation that reads or changes the store while its caller waits. */
export async function answerDirect(
  operation: DirectOperation,
  admitted: Admitted,
  services: EdgeServices,
): Promise<Answer> {
  const { request, requestId, caller, body, query, params, idempotencyKey } = admitted;
  const { config, resources, idempotency, scimSemaphore, largeSemaphore } = services;
  const input = { body, query, params, request: aboutRequest(request, config) };
  const handle = (as: string) => {
    const work = () => operation.handle({ ...caller, requestId: as }, input, resources);
    if (operation.auth === 'scim') return scimSemaphore.use(caller.workspaceId, work);
    return operation.isLarge ? largeSemaphore.use(caller.workspaceId, work) : work();
  };
  if (idempotencyKey && operation.readsOnly) await idempotency.read(idempotencyKey, requestId);
  if (!idempotencyKey || operation.readsOnly) return answerOf(await handle(requestId));
  return idempotentAnswer(idempotency.perform(idempotencyKey, directAttempt(requestId, handle)), requestId);
}
