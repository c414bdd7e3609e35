import { columnsWith, type MergeRule } from './standard-columns.ts';

/**
 * The rules of /users/merge and /users/identify, by table and column. The worker moves email and phone, together with
 * the states of the address. Coordinates move as a pair (src/store/merges.ts).
 *
 * Other data: events and purchases move by reference. An alias moves unless the kept profile has one with the same
 * label. Push tokens move. Group subscriptions stay with their profile.
 */
export const mergeRules = {
  profiles: {
    external_id: 'stay',
    ...rulesOfColumns(),
    /** The rule applies to each attribute name. */
    custom_attributes: 'keep',
    email_subscribe: 'stay',
    push_subscribe: 'stay',
    created_at: 'stay',
    attribute_changes: 'join',
  },
  event_summaries: { first: 'earliest', last: 'latest', count: 'sum', updated_at: 'newest' },
  purchase_summaries: {
    first: 'earliest',
    last: 'latest',
    count: 'sum',
    revenue: 'sum',
    updated_at: 'newest',
  },
  /** Only apps that both profiles have used. Summaries of other apps of the merged profile are deleted with it. */
  app_summaries: { sessions: 'sum', first_session: 'earliest', last_session: 'latest' },
} as const satisfies Record<string, Record<string, MergeRule>>;

function rulesOfColumns(): Record<string, MergeRule> {
  return Object.fromEntries(columnsWith(({ merge }) => merge).map(([name, { merge }]) => [name, merge!]));
}
