import type { AcceptedObject, EnvelopeRequest } from '../jobs/envelope.ts';
import type { Plan, Reply } from '../operations/operation.ts';
import type { GroupCommit } from '../queue/group-commit.ts';
import type { LaneEntry } from '../queue/lanes.ts';
import type { Attempt } from './once.ts';

/** Milliseconds that handing envelopes to the lanes takes at most; a second time does no harm. */
const HANDING_OVER = 1000;

/** Milliseconds that a request waits for the workers beside that. */
const SETTLING = 1500;

/** Milliseconds that a direct operation takes at most: several statements and templates, each with its patience. */
const HANDLING = 10_000;

export interface Queued {
  queue: GroupCommit;
  request: EnvelopeRequest;
  /** @throws what refuses the request */
  makePlan(): Promise<Plan>;
  bytesOf(objects: AcceptedObject[]): number;
  /** The answer when the envelopes are on disk. */
  settle(plan: Plan, entries: LaneEntry[]): Promise<Reply>;
  /** Whether the answer waits until they have taken effect. */
  waits: boolean;
}

/**
 * A queued request once: its envelopes, whose ids are made here and nowhere else, are written down before the lanes
 * get them. Whoever finds them there hands over the same ones, which the lanes and the ledger know by their ids.
 */
export function queuedAttempt({ queue, request, makePlan, bytesOf, settle, waits }: Queued): Attempt {
  let own: { plan: Plan; bytes: number } | undefined;
  return {
    async begin() {
      const plan = await makePlan();
      const bytes = bytesOf(plan.objects);
      own = { plan, bytes };
      const entries = queue.pack(request, plan.objects, bytes);
      return { requestId: request.request_id, staged: { entries, answer: plan.reply } };
    },
    async carryOut({ requestId, staged }) {
      const entries = staged!.entries as LaneEntry[];
      if (requestId === request.request_id && own) {
        const { plan, bytes } = own;
        await queue.add(entries, bytes);
        const reply = await settle(plan, entries);
        return { reply, accepted: plan.objects.length, rejected: plan.rejected };
      }
      await queue.add(entries, JSON.stringify(entries).length);
      const accepted = entries.reduce((sum, { envelope }) => sum + envelope.objects.length, 0);
      // How the objects end is what its plan would know: the answer is the one to a caller who has waited in vain.
      return { reply: staged!.answer, accepted, rejected: 0 };
    },
    lease: () => HANDING_OVER + (waits || own?.plan.settle ? SETTLING : 0),
  };
}

/**
 * A direct request once, as far as its answer gets written down. One that dies before is tried again under the same
 * request id, by which it finds what it had made.
 */
export function directAttempt(requestId: string, handle: (requestId: string) => Promise<Reply>): Attempt {
  return {
    begin: async () => ({ requestId }),
    carryOut: async (begun) => ({ reply: await handle(begun.requestId), accepted: 0, rejected: 0 }),
    lease: () => HANDLING,
  };
}
