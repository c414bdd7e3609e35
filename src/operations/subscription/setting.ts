import { ApiError, BadRequest } from '../../errors.ts';
import type { AcceptedGroupState } from '../../jobs/subscription.ts';
import { isGiven } from '../../profile/identifier.ts';
import type { Json } from '../../profile/json.ts';
import type { Channel } from '../../store/subscriptions/find-groups.ts';
import type { Caller } from '../operation.ts';

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** What a request says of one group. */
export interface Setting {
  subscription_group_id: string;
  subscription_state: AcceptedGroupState['subscription_state'];
  channel: Channel;
}

/** @throws {BadRequest|ApiError} when the group is not one of the caller's, or the state none */
export function readSetting(
  { subscription_group_id, subscription_state, use_double_opt_in_logic }: Record<string, Json>,
  caller: Caller,
): Setting {
  const id = readGroupId(subscription_group_id);
  const channel = caller.channelOf(id);
  if (channel === undefined) throw new ApiError('invalidSubscriptionGroup');
  if (!isGiven(subscription_state)) throw new BadRequest("'subscription_state' is required");
  if (subscription_state !== 'subscribed' && subscription_state !== 'unsubscribed') {
    throw new BadRequest("'subscription_state' must be 'subscribed' or 'unsubscribed'");
  }
  // To subscribe somebody who has been promised a question first would be worse than to refuse.
  if (use_double_opt_in_logic === true && channel === 'sms' && subscription_state === 'subscribed') {
    throw new BadRequest(
      "'use_double_opt_in_logic' is not valid: it must not be true, since no message can be sent to ask the user",
    );
  }
  return { subscription_group_id: id, subscription_state, channel };
}

/**
 * A group's id in lower case.
 * @throws {BadRequest|ApiError} when it is missing, or can be no group's
 */
export function readGroupId(value: Json | undefined): string {
  if (!isGiven(value)) throw new BadRequest("'subscription_group_id' is required");
  if (typeof value !== 'string' || !UUID.test(value)) throw new ApiError('invalidSubscriptionGroup');
  return value.toLowerCase();
}
