/**
 * Where tables lie on a distributed Postgres. What grows with users lies with its workspace, all of it on one node: the
 * column that says whose a row is.
 */
export const distributed: Record<string, 'workspace_id' | 'owner_id'> = {
  ledger: 'workspace_id',
  user_aliases: 'workspace_id',
  push_tokens: 'workspace_id',
  email_addresses: 'workspace_id',
  subscription_states: 'workspace_id',
  subscription_history: 'workspace_id',
  dropped_histories: 'workspace_id',
  invalid_phone_numbers: 'workspace_id',
  blocked_external_ids: 'workspace_id',
  deprecated_external_ids: 'workspace_id',
  merged_profiles: 'workspace_id',
  removed_profiles: 'workspace_id',
  events: 'workspace_id',
  purchases: 'workspace_id',
  custom_attribute_names: 'workspace_id',
  event_summaries: 'workspace_id',
  purchase_summaries: 'workspace_id',
  app_summaries: 'workspace_id',
  activity_series: 'workspace_id',
  usage: 'workspace_id',
  api_key_usage: 'workspace_id',
  cut_envelopes: 'workspace_id',
  outcomes: 'workspace_id',
  refused_objects: 'workspace_id',
  refused_requests: 'workspace_id',
  dead_letters: 'workspace_id',
  named_failures: 'workspace_id',
  left_names: 'workspace_id',
  sync_row_errors: 'workspace_id',
  segments: 'workspace_id',
  segment_exports: 'workspace_id',
  imports: 'workspace_id',
  retention_policies: 'workspace_id',
  retention_failures: 'workspace_id',
  archive_files: 'workspace_id',
  archive_erasures: 'workspace_id',
  stream_destinations: 'workspace_id',
  stream_log: 'workspace_id',
  stream_erasures: 'workspace_id',
  stream_erasure_passes: 'workspace_id',
  idempotency_keys: 'owner_id',
  token_buckets: 'owner_id',
  // The last: whoever connects knows by it that the tables are distributed.
  profiles: 'workspace_id',
};

/** Views of them. */
export const views: Record<string, 'workspace_id'> = {
  kept_dead_letters: 'workspace_id',
  kept_row_errors: 'workspace_id',
};

/** Tables of which every node has a copy: small, seldom written, and joined with what lies with a workspace. */
export const copied = [
  ...[
    'companies',
    'workspaces',
    'api_keys',
    'rate_limits',
    'subscription_groups',
    'teams',
    'permission_sets',
  ],
  ...[
    'scim_tokens',
    'accounts',
    'integrations',
    'sync_jobs',
    'sync_chunks',
    'sync_boundary',
    'sync_expected',
  ],
  ...['preference_centers', 'preference_link_keys', 'preference_link_revocations'],
];

/** Tables of the installation itself, which stay where the others are told from. */
export const central = [
  ...['_prisma_migrations', 'installation', 'members', 'processes', 'departed_processes', 'queue_losses'],
  ...['queue_shards', 'job_attempts'],
  ...['fleet_history', 'lane_totals', 'fence_arrivals', 'retention_runs', 'sessions', 'audit'],
];

/** Keys that begin with the workspace only where their table is distributed, and its indexes that change with them. */
export const keysWithWorkspace: Record<string, { columns: string; besides: string[] }> = {
  // By their ids alone they are looked up as well, by whoever knows nothing else.
  ledger: {
    columns: 'workspace_id, envelope_id',
    besides: ['create index ledger_envelope on ledger (envelope_id)'],
  },
  cut_envelopes: { columns: 'workspace_id, envelope_id', besides: [] },
  outcomes: {
    columns: 'workspace_id, object_id',
    besides: ['create index outcomes_object on outcomes (object_id)'],
  },
  dead_letters: {
    columns: 'workspace_id, id',
    besides: [
      'create index dead_letters_id on dead_letters (id)',
      'drop index dead_letters_place',
      'create unique index dead_letters_place on dead_letters (workspace_id, place)',
    ],
  },
  sync_row_errors: {
    columns: 'workspace_id, job_id, number',
    besides: [
      'create index sync_row_errors_job on sync_row_errors (job_id, number)',
      'drop index sync_row_errors_place',
      'create unique index sync_row_errors_place on sync_row_errors (workspace_id, place)',
    ],
  },
};
