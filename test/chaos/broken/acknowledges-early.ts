import { createCoalescer as create } from '../../../workers/coalescer.ts';

/** A worker that tells the queue that an envelope is applied before its transaction is committed. */
export function createCoalescer(...given: Parameters<typeof create>): ReturnType<typeof create> {
  const coalescer = create(...given);
  return {
    ...coalescer,
    async apply(...deliveries) {
      void coalescer.apply(...deliveries);
    },
  };
}
