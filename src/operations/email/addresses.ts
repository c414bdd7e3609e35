import type { AcceptedEmailChange } from '../../jobs/subscription.ts';
import { emailOf } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import { judge, planOf, requiredElements } from '../identity/elements.ts';
import { countedReply, email, refusal } from '../identity/schemas.ts';
import type { Plan, QueuedOperation } from '../operation.ts';
import { listOrOne, READ_BACK_WITHIN } from '../subscription/schemas.ts';

const FIELD = 'email';

/** The body's list of addresses. */
export const addresses = listOrOne(email, 'Email addresses; nobody need have them.');

/** What the operations that change a list of addresses have in common. */
export const ofAddresses = {
  kind: 'queued',
  method: 'POST',
  bucket: 'default',
  readBackWithin: READ_BACK_WITHIN,
  replies: {
    201: {
      description: 'The changes are on disk, and unless the workers are behind the next get sees them.',
      schema: countedReply([FIELD], {}),
    },
  },
  refusals: ['tooManyIds'],
  ...refusal([FIELD]),
} as const satisfies Partial<QueuedOperation>;

/**
 * The plan that changes each address of the body alike; one that cannot be read fails alone.
 *
 * @throws {BadRequest|ApiError} without a valid address, and with too many
 */
export function planChange(
  body: Record<string, Json>,
  change: Pick<AcceptedEmailChange, 'state' | 'hard_bounced' | 'marked_as_spam'>,
): Plan {
  const elements = requiredElements(body, FIELD, 'strings', 'tooManyIds');
  const judged = judge(FIELD, elements, (element) => {
    const read = emailOf(element);
    return 'error' in read ? read : { kind: 'email_change' as const, ...read.identifier, ...change };
  });
  return planOf(judged, [FIELD], {});
}
