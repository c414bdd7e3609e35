import { BadRequest } from '../errors.ts';
import { isGiven } from '../profile/identifier.ts';
import { refuse, required } from '../profile/refusal.ts';
import { addresses, ofAddresses, planChange } from './email/listing.ts';
import type { QueuedOperation } from './operation.ts';

const INVALID_STATE = refuse(
  'invalid',
  'subscription_state',
  "'subscription_state' must be 'subscribed', 'unsubscribed', or 'opted_in'",
);

/** POST /email/status: the global state of email addresses. */
export function emailStatus(): QueuedOperation {
  return {
    ...ofAddresses,
    id: 'email.status',
    path: '/email/status',
    permission: 'email.status',
    summary: 'Set the email subscription state of addresses',
    description:
      'At most 50 addresses. The state is that of everyone who has the address, and is kept for whoever takes one that nobody has yet. An address that cannot be read is named in `errors`; the others are stored before the answer is sent.',
    body: {
      type: 'object',
      required: ['email', 'subscription_state'],
      properties: {
        email: addresses,
        subscription_state: {
          enum: ['subscribed', 'unsubscribed', 'opted_in'],
          description: '`subscribed`: neither opted in nor opted out.',
        },
      },
    },
    example: {
      body: { email: 'ada@example.com', subscription_state: 'opted_in' },
      reply: { message: 'success' },
    },

    plan(_caller, body) {
      const { subscription_state: state } = body;
      if (!isGiven(state)) throw new BadRequest(required('subscription_state'));
      if (state !== 'subscribed' && state !== 'unsubscribed' && state !== 'opted_in') {
        throw new BadRequest(INVALID_STATE);
      }
      return planChange(body, { state });
    },
  };
}
