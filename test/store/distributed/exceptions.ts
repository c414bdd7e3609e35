const LETTERS =
  'dead letters go by their ids: the console, the queue and who waits for an object know no workspace';
const LEDGER = 'the ledger knows envelopes, and one may have requests of several workspaces';
const OUTCOMES = 'who waits for an object knows its id';
const ROWS = "goes by the run's id; its integration says whose it is";
const UPKEEP = 'upkeep: what is old enough to go, whosever it is';
const WORK = 'looks for what is to be done, whosever it is';
const LISTED = 'a list for people, over several workspaces';
const KEY = 'the key says whose it is';
const PLACE = 'an id is a place in all of the log, whosever the row is';
const TOTAL = 'a number of the whole installation';

/**
 * Statements that do not name the workspace of the rows that they touch in a table, as `site: table`, with
 * the reason. On a
 * distributed Postgres each of them is sent to every node, or has to be sent once per workspace.
 */
export const exceptions: Record<string, string> = {
  'api-keys.ts forgetKeyUsage: api_key_usage': UPKEEP,
  'archive-files.ts listFiles: archive_files': LISTED,
  'archive-files.ts summarizeRetention: archive_erasures': LISTED,
  'archive-files.ts summarizeRetention: archive_files': LISTED,
  'archive-files.ts summarizeRetention: retention_policies': LISTED,
  'blocked-external-ids.ts findCrowdedProfiles: event_summaries': WORK,
  'blocked-external-ids.ts findCrowdedProfiles: purchase_summaries': WORK,
  'counters.ts readTotals: dead_letters': TOTAL,
  'counters.ts readUsageToday: usage': TOTAL,
  'credentials.ts findApiKeys: blocked_external_ids': KEY,
  'dead-letter-groups.ts findGroup: dead_letters': LETTERS,
  'dead-letters.ts countWaiting: dead_letters': TOTAL,
  'dead-letters.ts countWaitingByWorkspace: dead_letters': TOTAL,
  'dead-letters.ts locateDeadLetters: dead_letters': LETTERS,
  'dead-letters.ts selectLatestWaiting: dead_letters': TOTAL,
  'erasures.ts eraseHistories: dropped_histories': WORK,
  'erasures.ts eraseHistories: subscription_history': WORK,
  'fences.ts exchangeArrivals: ledger': LEDGER,
  'idempotency-keys.ts forgetKeys: idempotency_keys': UPKEEP,
  'imports.ts eraseStaleRows: imports': UPKEEP,
  'imports.ts listStoppedImports: imports': LISTED,
  'suppression-lists.ts forgetInvalidNumbers: invalid_phone_numbers': UPKEEP,
  'ledger.ts claimEnvelopes: stream_destinations': LEDGER,
  'leases.ts takeOldest: segment_exports': WORK,
  'leases.ts takeOldest: stream_destinations': WORK,
  'leases.ts takeOldest: stream_log': WORK,
  'ledger.ts countLeftObjects: cut_envelopes': LEDGER,
  'ledger.ts findTraces: ledger': LEDGER,
  'ledger.ts readLatestTraces: ledger': LEDGER,
  'ledger.ts forgetCutEnvelopes: cut_envelopes': UPKEEP,
  'ledger.ts forgetEnvelopes: imports': UPKEEP,
  'ledger.ts forgetEnvelopes: ledger': UPKEEP,
  'ledger.ts readApplied: ledger': LEDGER,
  'dead-letter-actions.ts countDeadLetters: dead_letters': LISTED,
  'dead-letter-actions.ts keysOf: dead_letters': LISTED,
  'outcomes.ts forgetOutcomes: outcomes': UPKEEP,
  'outcomes.ts readOutcomes: outcomes': OUTCOMES,
  'refused-objects.ts countRefused: refused_objects': TOTAL,
  'refused-objects.ts forgetRefusedObjects: refused_objects': UPKEEP,
  'refused-objects.ts forgetRefusedObjects: refused_requests': UPKEEP,
  'refused-of-users.ts forgetRefusedOfUsers: refused_of_users': UPKEEP,
  'retention-runs.ts listFailures: retention_failures': LISTED,
  'retention-runs.ts readRetentionState: retention_failures': TOTAL,
  'retention.ts dueErasures: archive_erasures': WORK,
  'retention.ts dueErasures: archive_files': WORK,
  'segment-exports.ts forgetExports: segment_exports': UPKEEP,
  'segment-exports.ts listExpired: segment_exports': WORK,
  'segment-exports.ts listFailedExports: segment_exports': LISTED,
  'segment-exports.ts listFailedExports: segments': LISTED,
  'stream-destinations.ts createDestination: stream_log': PLACE,
  'stream-destinations.ts listDestinations: stream_destinations': LISTED,
  'stream-destinations.ts listDestinations: stream_log': LISTED,
  'stream-destinations.ts replayFrom: stream_log': PLACE,
  'stream-erasures.ts selectErasingWorkspaces: stream_erasure_passes': WORK,
  'stream-destinations.ts trimLog: stream_destinations': UPKEEP,
  'stream-destinations.ts trimLog: stream_log': UPKEEP,
  'sync-chunks.ts forgetRowErrors: sync_row_errors': UPKEEP,
  'tombstones.ts selectTombstones: removed_profiles': WORK,
};

/** Unique indexes of colocated tables that do not contain the workspace, with the reason. */
export const keys: Record<string, string> = {
  cut_envelopes_pkey: LEDGER,
  dead_letters_pkey: LETTERS,
  dead_letters_place: LETTERS,
  ledger_pkey: LEDGER,
  outcomes_pkey: OUTCOMES,
  sync_row_errors_pkey: ROWS,
  sync_row_errors_place: ROWS,
};

const TURNS = 'looks whose turn it is: what follows is sent for one workspace after the other';
const AT_ONCE = 'asks every shard at once';

/** The same for statements that are sent only to a distributed Postgres. */
export const exceptionsApart: Record<string, string> = {
  'archive-files.ts summarizeRetention: archive_erasures': AT_ONCE,
  'archive-files.ts summarizeRetention: archive_files': AT_ONCE,
  'archive-files.ts summarizeRetention: retention_policies': AT_ONCE,
  'counters.ts readUsageDistributed: usage': AT_ONCE,
  'credentials.ts findBlocked: blocked_external_ids': AT_ONCE,
  'erasures.ts eraseHistoriesByWorkspace: dropped_histories': TURNS,
  'idempotency-keys.ts forgetKeysByOwner: idempotency_keys': TURNS,
  'leases.ts takeByWorkspace: segment_exports': TURNS,
  'leases.ts takeByWorkspace: stream_destinations': TURNS,
  'stream-destinations.ts createDestination: stream_log': PLACE,
  'stream-destinations.ts listByWorkspace: stream_destinations': TURNS,
};
