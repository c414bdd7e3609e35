import type { QueuedOperation } from '../operation.ts';
import { addresses, ofAddresses, planChange } from './addresses.ts';

/**
 * The operation that unsubscribes addresses and marks them as hard bounces. It has two names.
 *
 * @param word the one that the path ends with
 */
export function blocklisting(word: 'blocklist' | 'blacklist', description: string): QueuedOperation {
  return {
    ...ofAddresses,
    id: `email.${word}`,
    path: `/email/${word}`,
    permission: 'email.blacklist',
    summary: 'Unsubscribe addresses and mark them as hard bounces',
    description,
    body: { type: 'object', required: ['email'], properties: { email: addresses } },
    example: { body: { email: ['gone@example.com'] }, reply: { message: 'success' } },
    plan: (_caller, body) => planChange(body, { state: 'unsubscribed', hard_bounced: true }),
  };
}
