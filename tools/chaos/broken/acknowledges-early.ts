import { createCoalescer as create } from '../../../workers/batch/coalescer.ts';

/** Long enough that whoever kills the worker finds something that it has acknowledged. */
const LATER_MS = 200;

/** A worker that tells the queue that an envelope is applied before its transaction is committed. */
export function createCoalescer(...given: Parameters<typeof create>): ReturnType<typeof create> {
  const coalescer = create(...given);
  return {
    ...coalescer,
    async apply(...deliveries) {
      setTimeout(() => void coalescer.apply(...deliveries), LATER_MS);
    },
  };
}
