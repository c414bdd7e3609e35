import type { UserAlias } from './identifier.ts';
import type { Json } from './json.ts';
import type { Refusal } from './refusal.ts';
import type { StandardAttributes } from './standard-columns.ts';

/** The result of a rule if a text in the attribute has more than 255 characters. The rule has changed nothing. */
export const TOO_LONG = Symbol('too long');

/** The reason why the whole object is refused, or a warning about a value that was cut or omitted. */
export type Finding = Refusal | { warning: string };

/**
 * Adds the changes of one standard attribute to the delta. `now` is the time of acceptance in epoch milliseconds.
 * Returns undefined if the value was accepted without a change.
 */
export type AttributeRule = (
  delta: AttributesDelta,
  value: Json,
  now: number,
) => Finding | typeof TOO_LONG | undefined;

/** Returns the standard attributes of a delta and creates them if necessary. */
export function standardOf(delta: AttributesDelta): StandardAttributes {
  delta.standard ??= {};
  return delta.standard;
}

/** Returns a warning about an invalid attribute that is omitted. The other attributes of its object are applied. */
export function omitted(broken: string): Finding {
  return { warning: `${broken}; it was omitted` };
}

/** The changes of an attribute object to a profile. Absent members change nothing. */
export interface AttributesDelta {
  /** Standard attributes. Null removes one. */
  standard?: StandardAttributes;
  /** Custom attributes to overwrite. Null removes one. */
  set?: Record<string, Json>;
  /** Custom attributes whose new value depends on the stored one. */
  change?: Record<string, AttributeChange>;
  /** The global email subscription state. */
  email_subscribe?: SubscriptionState;
  push_subscribe?: SubscriptionState;
  subscription_groups?: {
    subscription_group_id: string;
    subscription_state: 'subscribed' | 'unsubscribed';
  }[];
  push_tokens?: { app_id: string; token: string; device_id: string }[];
}

export type SubscriptionState = 'subscribed' | 'unsubscribed' | 'opted_in';

/** The columns of `profiles` whose names are attribute names of the API. */
export interface ProfileColumns extends StandardAttributes {
  push_subscribe?: SubscriptionState;
  email_subscribe?: SubscriptionState | null;
}

/** A user in the answer of /users/export/ids. Members without data are null. Times are ISO 8601 in UTC. */
export interface ExportedUser extends Required<Omit<StandardAttributes, 'phone_valid'>> {
  external_id: string | null;
  created_at: string;
  email_subscribe: SubscriptionState;
  email_opted_in_at: string | null;
  email_unsubscribed_at: string | null;
  email_hard_bounced_at: string | null;
  push_subscribe: SubscriptionState;
  custom_attributes: Record<string, Json> | null;
  user_aliases: UserAlias[] | null;
  push_tokens: { app: string; token: string; device_id: string }[] | null;
  custom_events: ExportedSummary[] | null;
  purchases: ExportedSummary[] | null;
  apps: { name: string; sessions: number; first_used: string; last_used: string }[] | null;
  /** Total revenue by currency. */
  revenue: Record<string, number> | null;
  subscription_groups: ExportedGroup[] | null;
  [member: string]: Json;
}

/** How often a user has triggered an event or bought a product. */
export type ExportedSummary = { name: string; first: string; last: string; count: number };

/** A user's subscription to a group. */
export type ExportedGroup = {
  id: string;
  name: string;
  channel: 'email' | 'sms' | 'whatsapp';
  status: 'Subscribed' | 'Unsubscribed';
};

/** A change of a custom attribute. It has exactly one of these members. */
export type AttributeChange =
  /** Adds to a number. A missing or non-numeric value counts as 0. */
  | { inc: number }
  /** Adds to and removes from an array of strings or numbers. `remove` is applied after `add`. */
  | { array: { add?: Json[]; remove?: Json[] } }
  /** Merges deeply into an object. Null removes a key. */
  | { merge: Record<string, Json> }
  /** Changes an array of objects: `$add`, then `$remove`, then `$update`. */
  | {
      objects: {
        add?: Json[];
        remove?: { key: string; value: Json }[];
        update?: { key: string; value: Json; new_object: Record<string, Json> }[];
        /** Whether `update` merges into the matching objects or replaces them. In a merge, null does not change a key. */
        merge: boolean;
      };
    };

/** Maximum number of warnings about one object in an answer. If there are more, FURTHER follows. */
const MAX_WARNINGS = 10;

const FURTHER = 'further fields were cut or omitted';

/** Whether strings and names of more than 255 characters are cut or refused. */
export type LongStrings = 'cut' | 'refuse';

/** Adds a warning to those of an object. No warnings are represented by undefined, because most objects have none. */
export function withWarning(warnings: readonly string[] | undefined, warning: string): readonly string[] {
  if (warnings === undefined) return [warning];
  if (warnings.length < MAX_WARNINGS) return [...warnings, warning];
  return warnings.length === MAX_WARNINGS ? [...warnings, FURTHER] : warnings;
}

/**
 * Returns the warning about a cut.
 *
 * @param field quoted name of the field, as in error messages
 * @param parts the parts that had more than 255 characters
 */
export function cutWarning(field: string, parts: { name: boolean; value: boolean }): string {
  const where = parts.name ? ` in its name${parts.value ? ' and its value' : ''}` : '';
  return `${field} was cut to 255 characters${where}`;
}

/**
 * Returns the warning that the last of two members with the same cut name is kept.
 * @param field quoted name of both members, as in error messages
 */
export function sameWhenCut(field: string): string {
  return `${field} is the name of two members when it is cut to 255 characters: the last one counts`;
}
