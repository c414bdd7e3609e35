/** Tables that stay small however many users there are, and why. Any other one counts as large. */
export const small: Record<string, string> = {
  _prisma_migrations: 'a row per migration',
  companies: 'a row per customer',
  workspaces: 'a few per company',
  api_keys: 'a few per workspace',
  rate_limits: 'a few per workspace',
  subscription_groups: 'tens per workspace',
  integrations: 'tens per workspace',
  preference_centers: 'a few per workspace',
  preference_link_keys: 'one per workspace',
  scim_tokens: 'a few per company',
  teams: 'a few per workspace',
  permission_sets: 'a few per company',
  lane_totals: 'a row per lane',
  fence_arrivals: 'fences at which a lane waits now',
  sync_chunks: 'one per run under way',
};

const PREFIX = 'what begins with a text';
const PAGE = 'a page, in the order of the index';
const OLD = 'what is old enough to go';

/** What may be read of a large table besides single rows, and why it stays short. */
export const longReads: Record<string, string> = {
  'accounts/find-accounts.ts: what one owner has in accounts':
    'a page in the order of the accounts; SCIM wants them counted, and what contains a text has no index but a time limit',
  'blocked-external-ids/block-if-dummies.ts: what one owner has in blocked_external_ids':
    'at most MAX_BLOCKED',
  'blocked-external-ids/find-crowded-profiles.ts: all of event_summaries_sample': 'holds one summary in 256',
  'blocked-external-ids/find-crowded-profiles.ts: all of purchase_summaries_sample':
    'holds one summary in 256',
  'dead-letters/select-latest-waiting.ts: all of dead_letters_waiting': 'as many as are wanted, from its end',
  'delivery/read-totals.ts: all of dead_letters_waiting': 'holds those that wait for a person',
  'find-api-key.ts: what one owner has in blocked_external_ids': 'at most MAX_BLOCKED',
  'removals/select-removed.ts: all of removed_profiles_pkey': 'as many as are wanted, from its start',
  'accounts/find-accounts.ts: a range of accounts_family_name': PREFIX,
  'accounts/find-accounts.ts: a range of accounts_given_name': PREFIX,
  'accounts/find-accounts.ts: a range of accounts_position': PAGE,
  'accounts/find-accounts.ts: a range of accounts_sign_in': PREFIX,
  'delivery/find-traces.ts: a range of ledger_pkey': 'the time in which the request can have been applied',
  'delivery/forget-envelopes.ts: a range of ledger_pkey': OLD,
  'idempotency/forget-keys.ts: a range of idempotency_keys_created': OLD,
  'outcomes/forget-outcomes.ts: a range of outcomes_pkey': OLD,
  'subscriptions/list-emails.ts: a range of email_addresses_hard_bounced': PAGE,
  'subscriptions/list-emails.ts: a range of email_addresses_unsubscribed': PAGE,
  'syncs/forget-row-errors.ts: a range of sync_row_errors_time': OLD,
  'syncs/forget-runs.ts: a range of sync_jobs_pkey': OLD,
  'syncs/find-unfinished-runs.ts: all of sync_jobs_running': 'holds one run per integration at most',
  'syncs/forget-ended-expected.ts: all of sync_expected_job': 'its first entry',
  'syncs/read-rules.ts: what one owner has in blocked_external_ids': 'at most MAX_BLOCKED',
  'syncs/read-sync-state.ts: all of sync_jobs_running': 'holds one run per integration at most',
};

/** Indexes of large tables that no statement of the store uses, and who does. */
export const usedElsewhere: Record<string, string> = {};
