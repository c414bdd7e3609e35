const LETTERS =
  'the view of dead letters has the workspace in its outer query alone, and not in its recursion';
const NAMELESS = 'nothing of what is given says whose it is';
const SWEEP = 'locks rows wherever they lie: it is to be sent for each workspace';
const APART = 'changes and reads in one statement what are to be two';
const JOINED = 'joins what lies with workspaces to what does not';
const WALK = 'walks from one workspace to the next';
const REFERRED = 'nothing is wrong with it: the tables are empty, and the row that it refers to is not there';

/** Statements that a Citus refuses, by their site, and why. */
export const refused: Record<string, string> = {
  'archive-files.ts summarizeRetention': JOINED,
  'counters.ts readUsageToday': JOINED,
  'credentials.ts findApiKeys': JOINED,
  'dead-letter-actions.ts discardDeadLetters': LETTERS,
  'dead-letter-actions.ts mendDeadLetter': LETTERS,
  'dead-letter-actions.ts readLetter': LETTERS,
  'dead-letter-actions.ts selectClosed': LETTERS,
  'dead-letter-groups.ts selectOfGroup': LETTERS,
  'dead-letters.ts claimWaitingForReplay': LETTERS,
  'dead-letters.ts markReplayed': LETTERS,
  'dead-letters.ts selectByRequest': LETTERS,
  'dead-letters.ts selectDeadLetters': LETTERS,
  'dead-letters.ts selectLatestWaiting': LETTERS,
  'email-addresses.ts clearSpamMarks': APART,
  'erasures.ts eraseHistories': SWEEP,
  'failures-of-users.ts bringFailures': SWEEP,
  'failures-of-users.ts eraseFailures': SWEEP,
  'health.ts readStuckFences': JOINED,
  'idempotency-keys.ts forgetKeys': SWEEP,
  'invalid-phone-numbers.ts forgetInvalidNumbers': APART,
  'ledger.ts claimEnvelopes': NAMELESS,
  'ledger.ts cutEnvelopes': NAMELESS,
  'merges.ts mergeProfiles': APART,
  'outcomes.ts recordOutcomes': NAMELESS,
  'partitions.ts ownersIn': WALK,
  'permission-sets.ts makePermissionSet': REFERRED,
  'preference-centers.ts revokeLinks': REFERRED,
  'segment-export-leases.ts leaseExports': SWEEP,
  'stream-leases.ts leaseDestinations': SWEEP,
  'sync-boundary.ts addToBoundary': REFERRED,
  'sync-chunks.ts findRefused': LETTERS,
  'sync-chunks.ts insertRowErrors': JOINED,
  'sync-lists.ts selectRowErrors': LETTERS,
  'timeline.ts selectLettersOfUser': LETTERS,
};
