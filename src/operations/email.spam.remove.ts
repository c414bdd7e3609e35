import { addresses, ofAddresses, planChange } from './email/listing.ts';
import type { QueuedOperation } from './operation.ts';

/** POST /email/spam/remove */
export function emailSpamRemove(): QueuedOperation {
  return {
    ...ofAddresses,
    id: 'email.spam.remove',
    path: '/email/spam/remove',
    permission: 'email.spam.remove',
    summary: 'Take back that addresses have marked an email as spam',
    description:
      'At most 50 addresses. Everyone who has one of them loses `marked_email_as_spam_at`; their subscription states stay as they are.',
    body: { type: 'object', required: ['email'], properties: { email: addresses } },
    example: { body: { email: 'ada@example.com' }, reply: { message: 'success' } },
    plan: (_caller, body) => planChange(body, { marked_as_spam: false }),
  };
}
