import type { EnvelopeRequest } from '../jobs/envelope.ts';
import type { Plan, QueuedOperation, Reply } from '../operations/operation.ts';
import type { LaneEntry } from '../queue/lanes.ts';
import { envelopesOf } from '../queue/pack.ts';
import type { Admitted } from './admit.ts';
import { answerOnce } from './answer-once.ts';
import { queuedAttempt } from './attempts.ts';
import { awaitOutcomes, UNDECIDED } from './await-outcomes.ts';
import { bytesOf } from './bytes-of.ts';
import type { Outcome } from './outcome.ts';
import { planWithGroups } from './plan-with-groups.ts';
import type { EdgeServices } from './services.ts';

/** Puts the objects of an operation into the queue; the answer waits for the disk. */
export async function answerQueued(
  operation: QueuedOperation,
  admitted: Admitted,
  services: EdgeServices,
): Promise<Reply> {
  const { request, requestId, caller, idempotent, outcome } = admitted;
  const { queue } = services;
  const accepted_at = new Date(caller.now).toISOString();
  const envelope: EnvelopeRequest = { request_id: requestId, workspace_id: caller.workspaceId, accepted_at };
  if (idempotent) {
    const attempt = queuedAttempt({
      queue,
      request: envelope,
      makePlan: () => makePlan(operation, admitted, services),
      bytesOf: (objects) => bytesOf(request, objects),
      settle: (plan, entries) => settled(operation, plan, envelope, entries, services, outcome),
      waits: operation.readBackWithin !== undefined,
    });
    return answerOnce(services.once.once(idempotent, attempt), requestId, outcome);
  }

  const plan = await makePlan(operation, admitted, services);
  const entries = await queue.enqueue(envelope, plan.objects, bytesOf(request, plan.objects));
  outcome.accepted = plan.objects.length;
  outcome.rejected = plan.rejected;
  const waits = operation.readBackWithin !== undefined || plan.settle !== undefined;
  return waits ? settled(operation, plan, envelope, entries, services, outcome) : plan.reply;
}

function makePlan(
  operation: QueuedOperation,
  { request, address, caller, body }: Admitted,
  { authenticator }: EdgeServices,
): Promise<Plan> {
  return planWithGroups(operation, caller, body, async () => {
    const { groups } = await authenticator.renew(request.headers.authorization, address, caller.now);
    return groups;
  });
}

/** The answer when the objects are on disk; some wait until these have taken effect, or say how they ended. */
async function settled(
  operation: QueuedOperation,
  plan: Plan,
  request: EnvelopeRequest,
  entries: LaneEntry[],
  { effects, resources }: EdgeServices,
  outcome: Outcome,
): Promise<Reply> {
  const { readBackWithin } = operation;
  if (
    readBackWithin !== undefined &&
    !(await effects.awaited(envelopesOf(request, entries), readBackWithin))
  ) {
    outcome.error = UNDECIDED;
  }
  if (!plan.settle) return plan.reply;
  const ids = plan.objects.map(({ id }) => id);
  const ended = await awaitOutcomes(resources.database.pool, ids);
  if ('errors' in ended) return plan.settle(ended.errors);
  outcome.error = ended.unknown;
  return plan.reply;
}
