const APART = 'on a distributed Postgres another text is sent in its place, once for each workspace';
const AT_ONCE = 'on a distributed Postgres another text is sent in its place, which asks all shards at once';

/** Statements that a Citus rejects, by their site, with the reason why that is harmless. */
export const refused: Record<string, string> = {
  'archive-files.ts summarizeRetention': AT_ONCE,
  'counters.ts readUsageToday': AT_ONCE,
  'credentials.ts findApiKeys': AT_ONCE,
  'erasures.ts eraseHistories': APART,
  'idempotency-keys.ts forgetKeys': APART,
  'leases.ts takeOldest': APART,
  'partitions.ts ownersIn': AT_ONCE,
};
