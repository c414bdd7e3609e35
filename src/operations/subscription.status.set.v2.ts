import { ApiError, BadRequest, type Rejection, refusalOf, rejectionOf } from '../errors.ts';
import type { AcceptedGroupState } from '../jobs/envelope.ts';
import { newId } from '../platform/ids.ts';
import type { Json } from '../profile/json.ts';
import { asRecord } from '../profile/values.ts';
import {
  arrayOf,
  countedReply,
  notAnObject,
  planOf,
  refusal,
  requiredElements,
} from './identity/elements.ts';
import type { Caller, QueuedOperation } from './operation.ts';
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

const FIELD = 'subscription_groups';

/** POST /v2/subscription/status/set: states of several groups. */
export function subscriptionStatusSetV2(): QueuedOperation {
  return {
    kind: 'queued',
    id: 'subscription.status.set.v2',
    method: 'POST',
    path: '/v2/subscription/status/set',
    permission: 'subscription.status.set',
    bucket: 'subscription.status.set',
    readBackWithin: READ_BACK_WITHIN,
    summary: 'Set the subscription states of users in several groups',
    description:
      'At most 50 elements. Each has one group, one state, and at most 50 external ids and either 50 emails (email group) or 50 phones (SMS or WhatsApp group). An element with an invalid group, state or kind of address makes the whole request fail. `errors` lists the external ids, emails and phones that are not valid; all others are stored before the answer is sent. A state belongs to the address: it applies to all users who share the address, and to users who get the address later. If two elements set a state for the same user, the later element wins.',
    body: {
      type: 'object',
      required: [FIELD],
      properties: { [FIELD]: arrayOf(element, 'The settings. They take effect in this order.') },
    },
    replies: {
      201: {
        description: 'The states are stored on disk. Unless the workers lag, the next read returns them.',
        schema: countedReply([FIELD], {}),
      },
    },
    refusals: [
      'nothingValid',
      'invalidSubscriptionGroup',
      'emailAndPhone',
      'tooManyIds',
      'tooManySubscriptionGroups',
    ],
    ...refusal([FIELD]),
    example: {
      body: {
        [FIELD]: [
          {
            subscription_group_id: EXAMPLE_GROUP,
            subscription_state: 'subscribed',
            external_ids: ['ada', 'grace'],
          },
          {
            subscription_group_id: EXAMPLE_GROUP,
            subscription_state: 'unsubscribed',
            emails: ['alan@example.com'],
          },
        ],
      },
      reply: { message: 'success' },
    },

    plan(caller, body) {
      const objects: AcceptedGroupState[] = [];
      const rejected: Rejection[] = [];
      const elements = requiredElements(body, FIELD, { of: 'objects', tooMany: 'tooManySubscriptionGroups' });
      elements.forEach((given, index) => {
        const { setting, targets } = at(index, () => readElement(given, caller));
        for (const target of targets) {
          if ('error' in target) {
            const { list, reason } = target;
            const error = `${list}[${target.index}]: ${target.error}`;
            rejected.push(rejectionOf({ error, reason, field: list }, { input_array: FIELD, index }));
            continue;
          }
          const { identifier } = target;
          objects.push({ kind: 'group_state', id: newId(), index, identifier, ...setting });
        }
      });
      return planOf({ objects, rejected }, [FIELD], {});
    },
  };
}

function readElement(value: Json, caller: Caller) {
  const given = asRecord(value);
  if (!given) throw new BadRequest(notAnObject(FIELD));
  const { channel, ...setting } = readSetting(given, caller);
  const lists = ['external_ids', 'emails', 'phones'];
  return { setting, targets: readTargets(given, { channel, lists }, caller) };
}

/** Runs `read` and adds the position of the element to its error, which refuses the whole request. */
function at<T>(index: number, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const { entry, message, fact } = error;
    const rejected = [rejectionOf(refusalOf(error), { input_array: FIELD, index })];
    throw new ApiError(entry, { message, fact, rejected });
  }
}

const element = {
  title: 'SubscriptionGroupUpdate',
  type: 'object',
  required: ['subscription_group_id', 'subscription_state'],
  properties: {
    subscription_group_id: groupId,
    subscription_state: subscriptionState,
    external_ids: targets.external_id,
    emails: targets.email,
    phones: targets.phone,
    use_double_opt_in_logic: doubleOptIn,
  },
} as const;
