/** Tables that stay small however many users there are, and why. Any other one counts as large. */
export const small: Record<string, string> = {
  _prisma_migrations: 'a row per migration',
  companies: 'a row per customer',
  workspaces: 'a few per company',
  api_keys: 'a few per workspace',
  rate_limits: 'a few per workspace',
  segments: 'tens per workspace',
  token_buckets: 'a few per workspace',
  subscription_groups: 'tens per workspace',
  integrations: 'tens per workspace',
  preference_centers: 'a few per workspace',
  preference_link_keys: 'one per workspace',
  scim_tokens: 'a few per company',
  teams: 'a few per workspace',
  permission_sets: 'a few per company',
  lane_totals: 'a row per lane',
  installation: 'one row',
  members: 'a row per process',
  processes: 'a row per process of the last hour',
  departed_processes: 'a row per name of a process',
  fleet_history: 'some 1,800 rows: a row a minute for a day, and one an hour for eight days',
  queue_losses: 'a row per loss of Redis',
  fence_arrivals: 'fences at which a lane waits now',
  cut_envelopes: 'envelopes that are applied in parts now',
  dropped_histories: 'a row per long history that is being erased',
  sync_chunks: 'one per run under way',
  imports: 'a row per imported file',
};

const PREFIX = 'what begins with a text';
const PAGE = 'a page, in the order of the index';
const OLD = 'what is old enough to go';

/** What may be read of a large table besides single rows, and why it stays short. */
export const longReads: Record<string, string> = {
  'accounts.ts findAccounts: what one owner has in accounts':
    'SCIM wants them counted; what contains a text has no index but a time limit',
  'accounts.ts readPage: what one owner has in accounts':
    'a page in the order of the accounts; what contains a text has no index but a time limit',
  'blocked-external-ids.ts blockIfDummies: what one owner has in blocked_external_ids': 'at most MAX_BLOCKED',
  'blocked-external-ids.ts findCrowdedProfiles: all of event_summaries_sample': 'holds one summary in 256',
  'blocked-external-ids.ts findCrowdedProfiles: all of purchase_summaries_sample': 'holds one summary in 256',
  'dead-letters.ts selectLatestWaiting: all of dead_letters_waiting': 'as many as are wanted, from its end',
  'dead-letters.ts countWaiting: all of dead_letters_waiting': 'as many as are counted',
  'dead-letter-groups.ts walkGroups: a range of dead_letters_groups': 'the first of the next group',
  'profile-search.ts newestUsers: what one owner has in profiles': 'a page, from the end of the index',
  'profile-search.ts searchUsers: a range of profiles_external_id_bytes': PREFIX,
  'profile-search.ts searchUsers: a range of user_aliases_pkey': 'the first of the next label',
  'profile-search.ts searchUsers: what one owner has in user_aliases':
    'the first, in the order of the labels',
  'counters.ts readTotals: all of dead_letters_waiting': 'holds those that wait for a person',
  'credentials.ts findApiKey: what one owner has in blocked_external_ids': 'at most MAX_BLOCKED',
  'accounts.ts findAccounts: a range of accounts_family_name': PREFIX,
  'accounts.ts readPage: a range of accounts_family_name': PREFIX,
  'accounts.ts findAccounts: a range of accounts_given_name': PREFIX,
  'accounts.ts readPage: a range of accounts_given_name': PREFIX,
  'accounts.ts readPage: a range of accounts_position': PAGE,
  'accounts.ts findAccounts: a range of accounts_sign_in': PREFIX,
  'accounts.ts readPage: a range of accounts_sign_in': PREFIX,
  'audit-list.ts forgetAudit: a range of audit_pkey': OLD,
  'audit-list.ts searchAudit: a range of audit_pkey': 'as many as one search looks through',
  'audit-list.ts searchAudit: all of audit_pkey': 'as many as one search looks through, from its end',
  'invalid-phone-numbers.ts listInvalidNumbers: a range of invalid_phone_numbers_detected': PAGE,
  'segments.ts lookAtUsers: a range of profiles_pkey': PAGE,
  'sessions.ts forgetSessions: a range of sessions_end': OLD,
  'sessions.ts listSessions: a range of sessions_company': PAGE,
  'sessions.ts listSessions: a range of sessions_end': 'holds who has signed in within twelve hours',
  'sessions.ts listSessions: all of sessions_pkey': PAGE,
  'api-keys.ts forgetKeyUsage: a range of api_key_usage_day': OLD,
  'ledger.ts findTraces: a range of ledger_pkey': 'the time in which the request can have been applied',
  'ledger.ts forgetEnvelopes: a range of ledger_pkey': OLD,
  'idempotency-keys.ts forgetKeys: a range of idempotency_keys_created': OLD,
  'outcomes.ts forgetOutcomes: a range of outcomes_pkey': OLD,
  'tombstones.ts selectTombstones: a range of removed_profiles_pkey': PAGE,
  'email-listing.ts listEmails: a range of email_addresses_hard_bounced': PAGE,
  'email-listing.ts listEmails: a range of email_addresses_unsubscribed': PAGE,
  'sync-chunks.ts forgetRowErrors: a range of sync_row_errors_time': OLD,
  'sync-runs.ts forgetRuns: a range of sync_jobs_pkey': OLD,
  'sync-runs.ts findUnfinishedRuns: all of sync_jobs_running': 'holds one run per integration at most',
  'sync-boundary.ts forgetEndedExpected: all of sync_expected_job': 'its first entry',
  'sync-lists.ts readRules: what one owner has in blocked_external_ids': 'at most MAX_BLOCKED',
  'sync-lists.ts readSyncState: all of sync_jobs_running': 'holds one run per integration at most',
};

/** Indexes of large tables that no statement of the store uses, and who does. */
export const usedElsewhere: Record<string, string> = {};
