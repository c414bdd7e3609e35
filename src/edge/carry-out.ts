import { type Rejection, rejectionOf } from '../errors.ts';
import type { AcceptedRequest } from '../jobs/envelope.ts';
import { inputArrayOf } from '../jobs/traces.ts';
import type { Plan, Reply, Resources } from '../operations/operation.ts';
import type { Semaphore } from '../platform/concurrency.ts';
import { isoTime } from '../platform/format.ts';
import { messageOf } from '../platform/log.ts';
import { presentTrace, tracing } from '../platform/tracing.ts';
import { type Effects, UNDECIDED } from '../queue/effects.ts';
import type { GroupCommit } from '../queue/enqueue.ts';
import { envelopesOf } from '../queue/pack.ts';
import { refusalByWorker } from '../store/external-id-refusals.ts';
import type { Admitted } from './admission.ts';
import { directAttempt, type Idempotency, idempotentAnswer, queuedAttempt } from './idempotency.ts';
import type { ChangePlan, EnqueuePlan, ObjectsPlan, ReadPlan } from './plan-request.ts';
import { type Answer, answerOf } from './reply.ts';
import { aboutRequest, type UrlSettings } from './request.ts';
import type { Responses } from './responses.ts';

/** Carries out requests whose objects go to the lanes. */
export class QueuedRequests {
  readonly #queue: GroupCommit;
  readonly #idempotency: Idempotency;
  readonly #effects: Effects;
  readonly #store: Pick<Resources, 'database'>;

  constructor(parts: {
    queue: GroupCommit;
    idempotency: Idempotency;
    effects: Effects;
    /** Answers are read from it. */
    store: Pick<Resources, 'database'>;
  }) {
    this.#queue = parts.queue;
    this.#idempotency = parts.idempotency;
    this.#effects = parts.effects;
    this.#store = parts.store;
  }

  /** Adds the objects of a request to the queue. The answer waits until they are on disk. */
  async enqueue(plan: EnqueuePlan, admitted: Admitted): Promise<Answer> {
    const request = envelopeRequestOf(admitted);
    const { once } = plan;
    if (once) {
      const attempt = queuedAttempt(this.#queue, request, {
        plan,
        answer: (planned, entries) =>
          this.#answer(planned, { waitMs: plan.waitMs, envelopeIds: () => envelopesOf(request, entries) }),
      });
      return idempotentAnswer(this.#idempotency.perform(once, attempt), admitted.requestId);
    }
    const made = plan.planObjects();
    const planned = made instanceof Promise ? await made : made;
    const entries = await this.#queue.enqueue(request, planned.objects, planned);
    return this.#answer(planned, { waitMs: plan.waitMs, envelopeIds: () => envelopesOf(request, entries) });
  }

  /** Makes the answer to a request whose objects are on disk. */
  async #answer(
    { objects, rejected, answer: planned }: ObjectsPlan,
    { waitMs, envelopeIds }: { waitMs: number | undefined; envelopeIds(): string[] },
  ): Promise<Answer> {
    const answer: Answer = { reply: planned.reply, accepted: objects.length, rejected };
    const isLate = waitMs !== undefined && !(await this.#effects.awaited(envelopeIds(), waitMs));
    if (planned.from === 'outcomes') {
      const ended = await this.#effects.outcomes(objects.map(({ id }) => id));
      if ('unknown' in ended) return { ...answer, error: ended.unknown };
      const refused = refusedByWorkers(objects, ended.errors);
      return { ...answer, reply: planned.replyOf(ended.errors), rejected: [...rejected, ...refused] };
    }
    if (isLate) return { ...answer, error: UNDECIDED };
    if (planned.from === 'store') return { ...answer, ...(await readBack(planned.readBack, this.#store)) };
    return answer;
  }
}

function envelopeRequestOf({ requestId, caller, requester, request }: Admitted): AcceptedRequest {
  return {
    request_id: requestId,
    workspace_id: caller.workspaceId,
    accepted_at: isoTime(caller.now),
    key_id: requester.keyId,
    ...(tracing && presentTrace(request.span)),
  };
}

/** Never rejects: the objects are stored, and a client that got an error would send them again. */
async function readBack(
  read: NonNullable<Plan['readBack']>,
  store: Pick<Resources, 'database'>,
): Promise<Pick<Answer, 'reply'> | Pick<Answer, 'error'>> {
  try {
    return { reply: await read(store) };
  } catch (error) {
    return { error: messageOf(error) };
  }
}

/** Accepted objects that the workers have refused, with the texts of the reply. */
function refusedByWorkers(objects: ObjectsPlan['objects'], errors: ReadonlyMap<string, string>): Rejection[] {
  return objects.flatMap((object) => {
    const error = errors.get(object.id);
    if (error === undefined) return [];
    const position = { input_array: inputArrayOf(object) ?? object.kind, index: object.index };
    return [rejectionOf(refusalByWorker(object, error), position)];
  });
}

/** Carries out requests that read or change the store while their callers wait. */
export class DirectRequests {
  readonly #resources: Resources;
  readonly #idempotency: Idempotency;
  readonly #scimSemaphore: Semaphore;
  readonly #largeSemaphore: Semaphore;
  readonly #responses: Pick<Responses, 'requireLargeRoom' | 'encode'>;
  readonly #urls: UrlSettings;

  constructor(parts: {
    resources: Resources;
    idempotency: Idempotency;
    /** Limits requests of SCIM connectors, which arrive in bursts, to a few at a time. */
    scimSemaphore: Semaphore;
    /** Limits requests that may have a large answer. */
    largeSemaphore: Semaphore;
    responses: Pick<Responses, 'requireLargeRoom' | 'encode'>;
    urls: UrlSettings;
  }) {
    this.#resources = parts.resources;
    this.#idempotency = parts.idempotency;
    this.#scimSemaphore = parts.scimSemaphore;
    this.#largeSemaphore = parts.largeSemaphore;
    this.#responses = parts.responses;
    this.#urls = parts.urls;
  }

  /** Reads and serializes the answer. A large answer does both in its turn, because both use memory. */
  async read(plan: ReadPlan, admitted: Admitted): Promise<Answer> {
    const { requestId, caller } = admitted;
    const { isLarge } = plan;
    if (plan.checked) await this.#idempotency.read(plan.checked, requestId);
    const owner = caller.companyId ?? caller.workspaceId;
    const work = async () => {
      this.#responses.requireLargeRoom(owner);
      const reply = await this.#handle(plan, admitted, requestId);
      const { body, parts } = reply;
      if (body === undefined && !parts) return answerOf(reply);
      return { ...answerOf(reply), text: await this.#responses.encode(parts ?? body!, { owner, isLarge }) };
    };
    return isLarge ? this.#largeSemaphore.use(owner, work) : work();
  }

  /** Changes the store. With a key, all requests with the key share one change and its answer. */
  async change(plan: ChangePlan, admitted: Admitted): Promise<Answer> {
    const { requestId } = admitted;
    const handle = (as: string) => this.#handle(plan, admitted, as);
    if (!plan.once) return answerOf(await handle(requestId));
    return idempotentAnswer(
      this.#idempotency.perform(plan.once, directAttempt(requestId, handle)),
      requestId,
    );
  }

  /** @param requestId of the first attempt, if another one has failed */
  #handle(
    { operation, isScim }: ReadPlan | ChangePlan,
    { request, caller, body, query, params }: Admitted,
    requestId: string,
  ): Promise<Reply> {
    const input = { body, query, params, request: aboutRequest(request, this.#urls) };
    const work = () => operation.handle({ ...caller, requestId }, input, this.#resources);
    return isScim ? this.#scimSemaphore.use(caller.workspaceId, work) : work();
  }
}
