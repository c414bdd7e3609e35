import type { UserAlias } from './identifier.ts';
import type { Json } from './json.ts';
import type { Refusal } from './refusal.ts';

/** Something in an attribute has more than 255 characters; the rule has changed nothing. */
export const TOO_LONG = Symbol('too long');

/** Why the whole attribute object is refused, or what became of this one attribute instead of what was sent. */
export type Finding = Refusal | { warning: string };

/**
 * Adds what one attribute of a fixed meaning changes to the delta; `now` is the time of acceptance in epoch
 * milliseconds. Returns what is to be said of it; undefined when it was taken as it is.
 */
export type AttributeRule = (
  delta: AttributesDelta,
  value: Json,
  now: number,
) => Finding | typeof TOO_LONG | undefined;

/** The standard attributes of a delta, which has some from now on. */
export function standardOf(delta: AttributesDelta): StandardAttributes {
  delta.standard ??= {};
  return delta.standard;
}

/** The finding of an attribute that cannot be read: it changes nothing, the others of its object do. */
export function leftOut(broken: string): Finding {
  return { warning: `${broken}; it was left out` };
}

/** What an attribute object changes on a profile. An absent member changes nothing. */
export interface AttributesDelta {
  /** Standard profile attributes; null removes. */
  standard?: StandardAttributes;
  /** Custom attributes to overwrite; null removes. */
  set?: Record<string, Json>;
  /** Custom attributes whose new value depends on the stored one. */
  change?: Record<string, AttributeChange>;
  /** The global email state. */
  email_subscribe?: SubscriptionState;
  push_subscribe?: SubscriptionState;
  subscription_groups?: {
    subscription_group_id: string;
    subscription_state: 'subscribed' | 'unsubscribed';
  }[];
  push_tokens?: { app_id: string; token: string; device_id: string }[];
}

export type SubscriptionState = 'subscribed' | 'unsubscribed' | 'opted_in';

/** Keys are columns of `profiles`. Dates are ISO 8601 in UTC, `dob` is YYYY-MM-DD. */
export interface StandardAttributes {
  email?: string | null;
  /** `valid` says whether the number can identify the profile. */
  phone?: string | null;
  phone_valid?: boolean | null;
  first_name?: string | null;
  last_name?: string | null;
  gender?: string | null;
  dob?: string | null;
  home_city?: string | null;
  country?: string | null;
  language?: string | null;
  time_zone?: string | null;
  image_url?: string | null;
  latitude?: number | null;
  longitude?: number | null;
  date_of_first_session?: string | null;
  date_of_last_session?: string | null;
  marked_email_as_spam_at?: string | null;
  email_open_tracking_disabled?: boolean | null;
  email_click_tracking_disabled?: boolean | null;
  facebook?: Json;
  twitter?: Json;
}

/** All that stands in columns of `profiles` by the name that it has on the wire. */
export interface ProfileColumns extends StandardAttributes {
  push_subscribe?: SubscriptionState;
  email_subscribe?: SubscriptionState | null;
}

/** A user as /users/export/ids answers. Null without data; times are ISO 8601 in UTC. */
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
  /** By currency. */
  revenue: Record<string, number> | null;
  subscription_groups: ExportedGroup[] | null;
  [member: string]: Json;
}

/** How often a user has done something, or bought it. */
export type ExportedSummary = { name: string; first: string; last: string; count: number };

/** What is known of a user's subscription to a group. */
export type ExportedGroup = {
  id: string;
  name: string;
  channel: 'email' | 'sms' | 'whatsapp';
  status: 'Subscribed' | 'Unsubscribed';
};

/** Exactly one member. */
export type AttributeChange =
  /** Adds to a number; a missing or non-numeric value counts as 0. */
  | { inc: number }
  /** Adds to and removes from an array of strings or numbers; `remove` is applied after `add`. */
  | { array: { add?: Json[]; remove?: Json[] } }
  /** Deep merge into an object; null inside removes that key. */
  | { merge: Record<string, Json> }
  /** Array of objects: `$add`, then `$remove`, then `$update`. */
  | {
      objects: {
        add?: Json[];
        remove?: { key: string; value: Json }[];
        update?: { key: string; value: Json; new_object: Record<string, Json> }[];
        /** Whether `update` merges into the matches, in which null leaves a key as it is, or replaces them. */
        merge: boolean;
      };
    };

/** Warnings of one object that an answer has; what else there is to say of it is one more. */
const MAX_WARNINGS = 10;

const FURTHER = 'further fields were cut or left out';

/** What becomes of strings and names of more than 255 characters. */
export type LongStrings = 'cut' | 'refuse';

/** The warnings of an object and one more. Undefined is none, since nearly every object has none. */
export function withWarning(warnings: readonly string[] | undefined, warning: string): readonly string[] {
  if (warnings === undefined) return [warning];
  if (warnings.length < MAX_WARNINGS) return [...warnings, warning];
  return warnings.length === MAX_WARNINGS ? [...warnings, FURTHER] : warnings;
}

/**
 * Says what was cut.
 *
 * @param field as an error names it, in quotes
 * @param parts which of them had more than 255 characters
 */
export function cutWarning(field: string, parts: { name: boolean; value: boolean }): string {
  const where = parts.name ? ` in its name${parts.value ? ' and its value' : ''}` : '';
  return `${field} was cut to 255 characters${where}`;
}

/** Says that only one of two members is left. @param field the name that both have, as an error names it */
export function sameWhenCut(field: string): string {
  return `${field} is the name of two members when it is cut to 255 characters: the last one counts`;
}
