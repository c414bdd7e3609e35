import type { Json } from './json.ts';

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
