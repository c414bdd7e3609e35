import type { Json } from '../profile/json.ts';

/**
 * What the edge hands to the workers: an envelope of accepted objects, in the order in which they take
 * effect. Everything that can be decided without the stored profile has been decided: identifiers are
 * chosen and normalised, times are ISO 8601 in UTC, rules are checked.
 *
 * The shape is a contract between releases: a worker meets envelopes that an older edge wrote.
 */
export interface Envelope {
  requests: EnvelopeRequest[];
  objects: AcceptedObject[];
  /** The objects are dead letters that are tried again. */
  replay?: true;
}

export interface EnvelopeRequest {
  /** The `X-Request-Id` of the answer. */
  request_id: string;
  workspace_id: string;
  /** ISO 8601, the edge's clock: when the request was accepted. */
  accepted_at: string;
}

/** The one identifier that addresses an object. */
export type Identifier =
  | { external_id: string }
  | { user_alias: { alias_name: string; alias_label: string } }
  /** 24 lower-case hex digits. */
  | { service_id: string }
  /** Lower-case. */
  | { email: string }
  /** E.164. */
  | { phone: string };

interface AcceptedBase {
  /** UUIDv7, given at the edge: the id of the row that the object becomes, and of its dead letter. */
  id: string;
  /** Index in `requests`. */
  request: number;
  /** The object's place in the array of the request that held it. */
  index: number;
  /** Whether an identifier that belongs to nobody makes a new profile. */
  create: boolean;
}

export interface AcceptedAttributes extends AcceptedBase, AttributesDelta {
  kind: 'attributes';
  /** Absent only for an import of push tokens, which makes an anonymous profile for each new token. */
  identifier?: Identifier;
}

export interface AcceptedEvent extends AcceptedBase {
  kind: 'events';
  identifier: Identifier;
  name: string;
  /** ISO 8601, UTC. */
  time: string;
  app_id?: string;
  properties?: Record<string, Json>;
}

export interface AcceptedPurchase extends AcceptedBase {
  kind: 'purchases';
  identifier: Identifier;
  product_id: string;
  /** ISO 4217, upper-case. */
  currency: string;
  /** In the currency's base unit (dollars, not cents); negative for a refund. */
  price: number;
  /** 1 to 100. */
  quantity: number;
  /** ISO 8601, UTC. */
  time: string;
  app_id?: string;
  properties?: Record<string, Json>;
}

export type AcceptedObject = AcceptedAttributes | AcceptedEvent | AcceptedPurchase;
export type ObjectKind = AcceptedObject['kind'];

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
        /** Whether `update` merges into the matches instead of replacing them. */
        merge: boolean;
      };
    };
