import type { Reply } from '../operations/operation.ts';
import type { Kept } from './once.ts';
import type { Outcome } from './outcome.ts';

/** The answer that everyone with the same `Idempotency-Key` gets. */
export async function answerOnce(
  answering: Promise<Kept>,
  requestId: string,
  outcome: Outcome,
): Promise<Reply> {
  const kept = await answering;
  outcome.accepted = kept.accepted;
  outcome.rejected = kept.rejected;
  if (kept.requestId !== requestId) outcome.repeats = kept.requestId;
  return kept.reply;
}
