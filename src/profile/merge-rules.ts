/**
 * What a merge makes of a field that both profiles may have. `kept` is the profile that stays.
 *
 * - `keep`: the kept profile's value; the merged one's where it has none
 * - `sum`, `earliest`, `latest`: of the two
 * - `newest`: the later of two of our own time stamps
 * - `stay`: the kept profile's, whatever the merged one has
 */
export type MergeRule = 'keep' | 'sum' | 'earliest' | 'latest' | 'newest' | 'stay';

/**
 * Every rule of /users/merge and /users/identify, by table and column. Email and phone are moved by the worker, with what is
 * known of the address; coordinates go as a pair (src/store/merges.ts).
 *
 * What is no field: events and purchases move by reference. An alias moves unless the kept profile has one with its
 * label. Push tokens move; group subscriptions stay where they are.
 */
export const mergeRules = {
  profiles: {
    external_id: 'stay',
    first_name: 'keep',
    last_name: 'keep',
    email: 'keep',
    phone: 'keep',
    gender: 'keep',
    dob: 'keep',
    home_city: 'keep',
    country: 'keep',
    language: 'keep',
    time_zone: 'keep',
    image_url: 'keep',
    latitude: 'keep',
    longitude: 'keep',
    facebook: 'keep',
    twitter: 'keep',
    email_open_tracking_disabled: 'keep',
    email_click_tracking_disabled: 'keep',
    /** Name by name. */
    custom_attributes: 'keep',
    date_of_first_session: 'earliest',
    date_of_last_session: 'latest',
    marked_email_as_spam_at: 'latest',
    email_subscribe: 'stay',
    push_subscribe: 'stay',
    created_at: 'stay',
  },
  event_summaries: { first: 'earliest', last: 'latest', count: 'sum', updated_at: 'newest' },
  purchase_summaries: {
    first: 'earliest',
    last: 'latest',
    count: 'sum',
    revenue: 'sum',
    updated_at: 'newest',
  },
  /** For apps that both profiles have used; those of the merged one alone are gone with it. */
  app_summaries: { sessions: 'sum', first_session: 'earliest', last_session: 'latest' },
} as const satisfies Record<string, Record<string, MergeRule>>;
