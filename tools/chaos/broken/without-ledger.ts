import type { claimEnvelopes as claim } from '../../../src/store/ledger.ts';

export * from '../../../src/store/ledger.ts';

/** Breaks a worker: without a ledger it claims every envelope. */
export const claimEnvelopes: typeof claim = async (_tx, envelopes) => ({
  claimed: new Set(envelopes.map(({ id }) => id)),
  now: new Date().toISOString(),
  streamed: new Set(),
});
