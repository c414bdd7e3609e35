/** The invariants that are checked after every scenario, with their texts in the report. */
export const invariants = {
  I1: 'every acknowledged object is applied',
  I2: 'none is applied twice: counts and sums are exact',
  I3: 'a request without an answer is applied 0 or 1 times, a refused one not at all',
  I4: 'per identifier, effects are in acceptance order',
  I5: 'the profiles are those of the sequential model',
  I6: 'the queue is empty, and memory is back',
} as const;

export type Invariant = keyof typeof invariants;

/** A violation of an invariant, with the object, user or process that it concerns. */
export interface Finding {
  invariant: Invariant;
  what: string;
}
