/**
 * Tables that stay small however many users there are, with the reason. Every other table counts as large.
 */
export const small: Record<string, string> = {
  _prisma_migrations: 'a row per migration',
  companies: 'a row per customer',
  workspaces: 'a few per company',
  api_keys: 'a few per workspace',
  rate_limits: 'a few per workspace',
  segments: 'tens per workspace',
  retention_policies: 'one per workspace',
  archive_files: 'a few per workspace and month that has gone',
  archive_erasures: 'one per workspace',
  retention_failures: 'a row per month with which the retention fails now',
  retention_runs: 'one row',
  token_buckets: 'a few per workspace',
  subscription_groups: 'tens per workspace',
  integrations: 'tens per workspace',
  preference_centers: 'a few per workspace',
  stream_erasure_passes: 'at most one per workspace',
  stream_destinations: 'at most ten per workspace',
  preference_link_keys: 'one per workspace',
  scim_tokens: 'a few per company',
  teams: 'a few per workspace',
  permission_sets: 'a few per company',
  lane_totals: 'a row per lane',
  installation: 'one row',
  queue_shards: 'a row per shard',
  members: 'a row per process',
  processes: 'a row per process of the last hour',
  departed_processes: 'a row per name of a process',
  fleet_history: 'some 1,800 rows: a row a minute for a day, and one an hour for eight days',
  queue_losses: 'a row per loss of Redis',
  user_search_pass: 'one row',
  fence_arrivals: 'fences at which a lane waits now',
  cut_envelopes: 'envelopes that are applied in parts now',
  dropped_histories: 'a row per long history that is being erased',
  sync_chunks: 'one per run under way',
  imports: 'a row per imported file',
  job_attempts:
    'a row per job, envelope or object that a process has in progress, or that outlived its process',
};

const PREFIX = 'what begins with a text';
const PAGE = 'a page, in the order of the index';
const OLD = 'what is old enough to go';
const OPEN = 'by the index of open exports: at most MAX_OPEN_EXPORTS of an owner';

const COUNTED = 'as many as are counted, at most MAX_COUNTED, when somebody asks for the plan';

/** Reads of large tables beyond single rows, with the reason why each stays short. */
export const longReads: Record<string, string> = {
  'accounts.ts findAccounts: what one owner has in accounts':
    'SCIM wants them counted; what contains a text has no index but a time limit',
  'accounts.ts readPage: what one owner has in accounts':
    'a page in the order of the accounts; what contains a text has no index but a time limit',
  'attribute-names.ts countAttributeNames: what one owner has in custom_attribute_names': 'at most MAX_NAMES',
  'blocked-external-ids.ts blockIfDummies: what one owner has in blocked_external_ids': 'at most MAX_BLOCKED',
  'blocked-external-ids.ts findCrowdedProfiles: all of event_summaries_sample': 'holds one summary in 256',
  'blocked-external-ids.ts findCrowdedProfiles: all of purchase_summaries_sample': 'holds one summary in 256',
  'dead-letters.ts selectLatestWaiting: all of dead_letters_waiting': 'as many as are wanted, from its end',
  'dead-letters.ts countWaiting: all of dead_letters_waiting': 'as many as are counted',
  'dead-letters.ts countWaitingByWorkspace: all of dead_letters_waiting': 'as many as are counted',
  'dead-letter-actions.ts keysOf: a range of dead_letters_pkey': PAGE,
  'dead-letter-actions.ts keysOf: a range of dead_letters_waiting': PAGE,
  'dead-letter-actions.ts countDeadLetters: all of dead_letters':
    'somebody who replays all of them asks how many there are',
  'dead-letter-groups.ts readGroups: a range of dead_letters_groups': 'the first of the next group',
  'profile-search.ts newestUsers: what one owner has in profiles': 'a page, from the end of the index',
  'profile-search.ts searchUsers: a range of profiles_external_id_bytes': PREFIX,
  'profile-search.ts searchUsers: a range of user_aliases_pkey': 'the first of the next label',
  'profile-search.ts searchUsers: what one owner has in user_aliases':
    'the first, in the order of the labels',
  'counters.ts readTotals: all of dead_letters_waiting': 'holds those that wait for a person',
  'credentials.ts findApiKeys: what one owner has in blocked_external_ids': 'at most MAX_BLOCKED',
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
  'partitions.ts ownersIn: all of events_pkey': 'its first entry',
  'partitions.ts ownersIn: what one owner has in events': 'the first of the next owner',
  'refused-objects.ts countRefused: a range of refused_objects_sample': 'two hours, at most MAX_COUNTED rows',
  'refused-objects.ts forgetRefusedObjects: a range of refused_objects_sample': OLD,
  'refused-objects.ts forgetRefusedObjects: a range of refused_requests_id': OLD,
  'refused-objects.ts listRefusedRequests: a range of refused_requests_id': PAGE,
  'refused-objects.ts sumUp: a range of refused_objects_workspace_hour':
    'the latest hours, at most MAX_SUMMED rows',
  'refused-of-users.ts forgetRefusedOfUsers: a range of refused_of_users_day': OLD,
  'retention.ts countRows: what one owner has in events': COUNTED,
  'retention.ts countRows: what one owner has in purchases': COUNTED,
  'retention.ts scanMonths: a range of events_pkey': PAGE,
  'retention.ts scanMonths: a range of purchases_pkey': PAGE,
  'retention.ts readRows: a range of events_pkey': PAGE,
  'retention.ts readRows: a range of purchases_pkey': PAGE,
  'bulk-export.ts readActivity: a range of events_pkey': PAGE,
  'bulk-export.ts readActivity: a range of purchases_pkey': PAGE,
  'bulk-export.ts readEmailStates: a range of email_addresses_pkey': PAGE,
  'bulk-export.ts readGroupStates: a range of subscription_states_pkey': PAGE,
  'segments.ts evaluateUsers: a range of profiles_pkey': PAGE,
  'suppression-lists.ts forgetInvalidNumbers: a range of invalid_phone_numbers_pkey': PAGE,
  'segment-exports.ts forgetExports: a range of segment_exports_requested': OLD,
  'segment-exports.ts listFailedExports: a range of segment_exports_requested':
    'two days of requests, for people',
  'segment-exports.ts listFailedExports: a range of segment_exports_pkey':
    'later exports of the segments that failed, for people',
  'segment-exports.ts listExpired: a range of segment_exports_expiry': OLD,
  'segment-exports.ts requestSegmentExport: what one owner has in segment_exports': OPEN,
  'sessions.ts forgetSessions: a range of sessions_end': OLD,
  'sessions.ts listSessions: a range of sessions_company': PAGE,
  'sessions.ts listSessions: a range of sessions_end': 'holds who has signed in within twelve hours',
  'sessions.ts listSessions: all of sessions_pkey': PAGE,
  'api-keys.ts forgetKeyUsage: a range of api_key_usage_day': OLD,
  'ledger.ts findTraces: a range of ledger_pkey': 'the time in which the request can have been applied',
  'ledger.ts forgetEnvelopes: a range of ledger_pkey': OLD,
  'ledger.ts readLatestTraces: a range of ledger_pkey': PAGE,
  'idempotency-keys.ts forgetKeys: a range of idempotency_keys_created': OLD,
  'leases.ts takeOldest: what one owner has in segment_exports': OPEN,
  'leases.ts takeOldest: a range of stream_log_pkey': 'as many as fill a file, at most FULL.rows',
  'stream-destinations.ts listDestinations: a range of stream_log_pkey': 'the first of the range',
  'stream-destinations.ts createDestination: a range of stream_log_at':
    'the first MAX_CONCURRENT_ROWS after a time',
  'stream-destinations.ts replayFrom: a range of stream_log_at': 'the first MAX_CONCURRENT_ROWS after a time',
  'stream-destinations.ts trimLog: a range of stream_log_at': OLD,
  'stream-log.ts readLog: a range of stream_log_pkey': PAGE,
  'email-addresses.ts dropUnheldAddresses: what one owner has in stream_log': 'one row: whether there is any',
  'tombstones.ts dropSettled: what one owner has in stream_log': 'one row: whether there is any',
  'stream-erasures.ts beginErasurePass: all of stream_erasures':
    'from the console: holds users whose erasure waits, and the pass takes up to SUBJECTS of them',
  'stream-erasures.ts beginErasurePass: what one owner has in stream_erasures': 'at most SUBJECTS',
  'stream-erasures.ts beginErasurePass: what one owner has in stream_log': 'the last of the index',
  'stream-erasures.ts eraseFromLog: a range of stream_log_pkey': PAGE,
  'stream-erasures.ts eraseFromLog: what one owner has in stream_erasures':
    'a pass over many rows of the log',
  'stream-erasures.ts isErasureWaiting: what one owner has in stream_erasures':
    'one row: whether there is any',
  'outcomes.ts forgetOutcomes: a range of outcomes_pkey': OLD,
  'tombstones.ts selectTombstones: a range of removed_profiles_pkey': PAGE,
  'user-search.ts indexPage: a range of profiles_pkey': PAGE,
  'user-search.ts indexPage: a range of user_search_pkey': PAGE,
  'user-search.ts listUsers: a range of profiles_pkey': PAGE,
  'user-search.ts searchParts: a range of profiles_external_id_bytes': PREFIX,
  'suppression-lists.ts listEmails: a range of email_addresses_hard_bounced': PAGE,
  'suppression-lists.ts listEmails: a range of email_addresses_unsubscribed': PAGE,
  'sync-chunks.ts forgetRowErrors: a range of sync_row_errors_time': OLD,
  'sync-runs.ts forgetRuns: a range of sync_jobs_pkey': OLD,
  'sync-runs.ts findUnfinishedRuns: all of sync_jobs_running': 'holds one run per integration at most',
  'sync-boundary.ts forgetEndedExpected: all of sync_expected_job': 'its first entry',
  'sync-lists.ts readRules: what one owner has in blocked_external_ids': 'at most MAX_BLOCKED',
  'sync-lists.ts readSyncState: all of sync_jobs_running': 'holds one run per integration at most',
};

/** Indexes of large tables that no statement of the store uses, with their users. */
export const usedElsewhere: Record<string, string> = {};
