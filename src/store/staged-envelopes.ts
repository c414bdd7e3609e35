/** Envelopes that are stored with their ids and may not have been enqueued yet. */
export interface StagedEnvelopes {
  /** Keys of the ledger rows that record that the envelopes were applied. */
  envelopeIds: string[];
  /** Entries of the lanes. */
  entries: unknown[];
}

/** Days after which the staged envelopes of an interrupted sync or import are erased. They contain personal data. */
export const STAGED_DAYS = 7;
