import { addresses, addressOperation, planChange } from './email/listing.ts';
import type { QueuedOperation } from './operation.ts';

/** POST /email/bounce/remove */
export function emailBounceRemove(): QueuedOperation {
  return {
    ...addressOperation,
    id: 'email.bounce.remove',
    path: '/email/bounce/remove',
    permission: 'email.bounce.remove',
    summary: 'Remove addresses from the list of hard bounces',
    description: 'At most 50 addresses. Their subscription states do not change.',
    body: { type: 'object', required: ['email'], properties: { email: addresses } },
    example: { body: { email: 'ada@example.com' }, reply: { message: 'success' } },
    plan: (_caller, body) => planChange(body, { hard_bounced: false }),
  };
}
