import type { Identifier } from '../profile/identifier.ts';

interface SubscriptionBase {
  /** UUIDv7, given at the edge: names its dead letter. */
  id: string;
  /** Index in the envelope's `requests`. */
  request: number;
  /** The object's place in the array of the request that held it. */
  index: number;
}

/** What one user, or whoever has an address, wants of one subscription group. */
export interface AcceptedGroupState extends SubscriptionBase {
  kind: 'group_state';
  /** Where the object stood in the request; absent: an element of `subscription_groups`. */
  input_array?: 'external_id' | 'external_ids' | 'email' | 'emails' | 'phone' | 'phones';
  identifier: Identifier;
  subscription_group_id: string;
  subscription_state: 'subscribed' | 'unsubscribed';
}

/** What is said of one email address, whoever has it. What is not named stays. */
export interface AcceptedEmailChange extends SubscriptionBase {
  kind: 'email_change';
  /** Lower-case. */
  email: string;
  state?: 'subscribed' | 'unsubscribed' | 'opted_in';
  hard_bounced?: boolean;
  marked_as_spam?: false;
}

export type SubscriptionObject = AcceptedGroupState | AcceptedEmailChange;
export type SubscriptionKind = SubscriptionObject['kind'];
