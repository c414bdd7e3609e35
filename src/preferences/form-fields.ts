/** What a user can say of email as a whole. */
export const globalStates = ['subscribed', 'unsubscribed', 'opted_in'] as const;
export type GlobalState = (typeof globalStates)[number];

/** What a user can say of one subscription group. */
export const groupStates = ['subscribed', 'unsubscribed'] as const;
export type GroupStateName = (typeof groupStates)[number];

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** The id in lower case, or undefined when it is no UUID. */
export function uuidOf(text: string): string | undefined {
  return UUID.test(text) ? text.toLowerCase() : undefined;
}

/** Name of the form field for the global email state. */
export const GLOBAL_FIELD = 'email_global_state';

const GROUP_PREFIX = 'subscription_group_';

/** Name of the form field for a subscription group. */
export function groupField(groupId: string): string {
  return GROUP_PREFIX + groupId;
}

/** The group that a form field is for, if it is for one. */
export function groupOfField(name: string): string | undefined {
  return name.startsWith(GROUP_PREFIX) ? uuidOf(name.slice(GROUP_PREFIX.length)) : undefined;
}
