import { createCoalescer as create } from '../../../workers/batch/coalescer.ts';

/**
 * Milliseconds of the delay, long enough that a killed worker has acknowledged envelopes which it has not
 * applied.
 */
const DELAY_MS = 200;

/**
 * Breaks a worker: it reports to the queue that an envelope is applied before its transaction is committed.
 */
export function createCoalescer(...given: Parameters<typeof create>): ReturnType<typeof create> {
  const coalescer = create(...given);
  return {
    ...coalescer,
    async apply(...deliveries) {
      setTimeout(() => void coalescer.apply(...deliveries), DELAY_MS);
    },
  };
}
