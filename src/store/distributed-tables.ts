/**
 * Tables that are distributed over the nodes, with their distribution column. Tables that grow with users are
 * distributed by workspace, so that all rows of a workspace are on one node.
 */
export const distributed: Record<string, 'workspace_id' | 'owner_id'> = {
  ledger: 'workspace_id',
  user_aliases: 'workspace_id',
  user_search: 'workspace_id',
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
  refused_of_users: 'workspace_id',
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
  // The last one: connections detect a distributed Postgres by this table.
  profiles: 'workspace_id',
};

/** Views of distributed tables. */
export const views: Record<string, 'workspace_id'> = {
  kept_dead_letters: 'workspace_id',
  kept_row_errors: 'workspace_id',
};

/**
 * Reference tables, of which every node has a copy: small, rarely written, and joined with distributed
 * tables.
 */
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

/** Tables of the installation, which stay on the coordinator. A test requires each table to be in one of the lists. */
export const central = [
  ...['_prisma_migrations', 'installation', 'members', 'processes', 'departed_processes', 'queue_losses'],
  ...['queue_shards', 'job_attempts', 'user_search_pass'],
  ...['fleet_history', 'lane_totals', 'fence_arrivals', 'retention_runs', 'sessions', 'audit'],
];

/**
 * Primary keys that start with the workspace only on a distributed Postgres, and statements for the indexes
 * that change with them.
 */
export const keysWithWorkspace: Record<string, { columns: string; besides: string[] }> = {
  // These tables are also read by id alone, by callers that do not know the workspace.
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
