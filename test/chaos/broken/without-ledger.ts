import type { Connection } from '../../../src/store/database.ts';

/** A worker that keeps no ledger: whatever it is given is its own to apply. */
export async function claimEnvelopes(
  _tx: Connection,
  ids: string[],
): Promise<{ claimed: Set<string>; now: Date }> {
  return { claimed: new Set(ids), now: new Date() };
}
