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

/** What may be read without looking anything up but the owner, as `file: index`, and why it stays short. */
export const whole: Record<string, string> = {
  'accounts/find-accounts.ts: accounts_position':
    'a page of a company’s accounts, in their order, is read as far as it goes',
  'accounts/find-accounts.ts: accounts_external_id':
    'all of a company’s are counted, as SCIM wants it; what contains a text has no index, and a time limit',
  'blocked-external-ids/block-if-dummies.ts: blocked_external_ids_pkey': 'at most MAX_BLOCKED of a workspace',
  'blocked-external-ids/find-crowded-profiles.ts: event_summaries_sample': 'holds one summary in 256',
  'blocked-external-ids/find-crowded-profiles.ts: purchase_summaries_sample': 'holds one summary in 256',
  'dead-letters/select-latest-waiting.ts: dead_letters_waiting': 'as many as are wanted, from its end',
  'delivery/read-totals.ts: dead_letters_waiting': 'holds those that wait for a person',
  'find-api-key.ts: blocked_external_ids_pkey': 'at most MAX_BLOCKED of a workspace',
  'removals/select-removed.ts: removed_profiles_pkey': 'as many as are wanted, from its start',
  'syncs/find-unfinished-runs.ts: sync_jobs_running': 'holds one run per integration at most',
  'syncs/forget-ended-expected.ts: sync_expected_job': 'its first entry',
  'syncs/read-rules.ts: blocked_external_ids_pkey': 'at most MAX_BLOCKED of a workspace',
  'syncs/read-sync-state.ts: sync_jobs_running': 'holds one run per integration at most',
};

/** Indexes of large tables that no statement of the store uses, and who does. */
export const usedElsewhere: Record<string, string> = {};
