import { type Rejection, rejectionOf } from '../errors.ts';
import type { AcceptedGroupState } from '../jobs/envelope.ts';
import { newId } from '../platform/ids.ts';
import { countedReply, planOf, refusal } from './identity/elements.ts';
import type { QueuedOperation } from './operation.ts';
import {
  doubleOptIn,
  EXAMPLE_GROUP,
  groupId,
  READ_BACK_WITHIN,
  readSetting,
  readTargets,
  subscriptionState,
  targets,
} from './subscription/states.ts';

const fields = Object.keys(targets);

/** POST /subscription/status/set: one state of one group, for users and addresses. */
export function subscriptionStatusSet(): QueuedOperation {
  return {
    kind: 'queued',
    id: 'subscription.status.set',
    method: 'POST',
    path: '/subscription/status/set',
    permission: 'subscription.status.set',
    bucket: 'subscription.status.set',
    readBackWithin: READ_BACK_WITHIN,
    summary: 'Set the subscription state of users in a group',
    description:
      'At most 50 external ids, and either 50 emails (email group) or 50 phones (SMS or WhatsApp group). A state belongs to the address: it applies to all users who share the address, and to users who get the address later. `errors` lists the elements that are not valid; all others are stored before the answer is sent. States of an archived group do not change.',
    body: {
      type: 'object',
      required: ['subscription_group_id', 'subscription_state'],
      properties: {
        subscription_group_id: groupId,
        subscription_state: subscriptionState,
        ...targets,
        use_double_opt_in_logic: doubleOptIn,
      },
    },
    replies: {
      201: {
        description: 'The states are stored on disk. Unless the workers lag, the next read returns them.',
        schema: countedReply(fields, {}),
      },
    },
    refusals: ['nothingValid', 'invalidSubscriptionGroup', 'emailAndPhone', 'tooManyIds'],
    ...refusal(fields),
    example: {
      body: {
        subscription_group_id: EXAMPLE_GROUP,
        subscription_state: 'unsubscribed',
        email: ['ada@example.com'],
      },
      reply: { message: 'success' },
    },

    plan(caller, body) {
      const { channel, ...setting } = readSetting(body, caller);
      const objects: AcceptedGroupState[] = [];
      const rejected: Rejection[] = [];
      const lists = ['external_id', 'email', 'phone'];
      for (const target of readTargets(body, { channel, lists }, caller)) {
        const { list, index } = target;
        if ('error' in target) rejected.push(rejectionOf(target, { input_array: list, index }));
        else {
          const { identifier } = target;
          objects.push({
            kind: 'group_state',
            id: newId(),
            index,
            input_array: list,
            identifier,
            ...setting,
          });
        }
      }
      return planOf({ objects, rejected }, fields, {});
    },
  };
}
