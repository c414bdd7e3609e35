import { addresses, addressOperation, planChange } from './email/listing.ts';
import type { QueuedOperation } from './operation.ts';

/** POST /email/spam/remove */
export function emailSpamRemove(): QueuedOperation {
  return {
    ...addressOperation,
    id: 'email.spam.remove',
    path: '/email/spam/remove',
    permission: 'email.spam.remove',
    summary: 'Remove the spam mark of email addresses',
    description:
      'At most 50 addresses. Removes `marked_email_as_spam_at` from all users with one of the addresses. Their subscription states do not change.',
    body: { type: 'object', required: ['email'], properties: { email: addresses } },
    example: { body: { email: 'ada@example.com' }, reply: { message: 'success' } },
    plan: (_caller, body) => planChange(body, { marked_as_spam: false }),
  };
}
