import { BadRequest } from '../errors.ts';
import { isGiven } from '../profile/identifier.ts';
import { refuse, required } from '../profile/refusal.ts';
import { addresses, addressOperation, planChange } from './email/listing.ts';
import type { QueuedOperation } from './operation.ts';

const INVALID_STATE = refuse(
  'invalid',
  'subscription_state',
  "'subscription_state' must be 'subscribed', 'unsubscribed', or 'opted_in'",
);

/** POST /email/status: the global state of email addresses. */
export function emailStatus(): QueuedOperation {
  return {
    ...addressOperation,
    id: 'email.status',
    path: '/email/status',
    permission: 'email.status',
    summary: 'Set the email subscription state of addresses',
    description:
      'At most 50 addresses. The state applies to all users who have the address now or later. `errors` lists the addresses that are not valid; all others are stored before the answer is sent.',
    body: {
      type: 'object',
      required: ['email', 'subscription_state'],
      properties: {
        email: addresses,
        subscription_state: {
          enum: ['subscribed', 'unsubscribed', 'opted_in'],
          description: '`subscribed`: the user has neither opted in nor opted out.',
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
