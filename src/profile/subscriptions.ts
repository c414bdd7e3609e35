import type { AttributeRule } from './attribute-rule.ts';
import type { AttributesDelta, SubscriptionState } from './attributes-delta.ts';
import type { Json } from './json.ts';
import { areRecords } from './record.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;

/** The attributes that say what a user wants to receive, by their name on the wire. */
export const SUBSCRIPTION_ATTRIBUTES: [name: string, rule: AttributeRule][] = [
  ['email_subscribe', subscriptionState('email_subscribe')],
  ['push_subscribe', subscriptionState('push_subscribe')],
  ['subscription_groups', subscriptionGroups],
  ['email_subscription_info', () => "'email_subscription_info' is not valid: it may not be set"],
];

/** Null says nothing: a value that a client lacks must not subscribe anew whoever has unsubscribed. */
function subscriptionState(name: 'email_subscribe' | 'push_subscribe'): AttributeRule {
  const error = `'${name}' must be 'subscribed', 'unsubscribed', or 'opted_in'`;
  return function ruleOfState(delta, value) {
    if (value === null) return undefined;
    if (value !== 'subscribed' && value !== 'unsubscribed' && value !== 'opted_in') return error;
    delta[name] = value satisfies SubscriptionState;
    return undefined;
  };
}

/** Group ids are UUIDs, kept in lower case; whether a group exists is not known here. Null is no group. */
function subscriptionGroups(delta: AttributesDelta, value: Json): string | undefined {
  if (value === null) return undefined;
  const list = Array.isArray(value) ? value : [value];
  if (!areRecords(list)) return "'subscription_groups' is not valid: it must be an array of objects";
  const groups: NonNullable<AttributesDelta['subscription_groups']> = [];
  for (const { subscription_group_id: id, subscription_state: state } of list) {
    if (typeof id !== 'string' || !UUID.test(id)) {
      return "'subscription_group_id' is not valid: it must be the UUID of a subscription group";
    }
    if (state !== 'subscribed' && state !== 'unsubscribed') {
      return "'subscription_state' must be 'subscribed' or 'unsubscribed'";
    }
    groups.push({ subscription_group_id: id.toLowerCase(), subscription_state: state });
  }
  if (groups.length > 0) delta.subscription_groups = groups;
  return undefined;
}
