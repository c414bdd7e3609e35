import { type Coalescer, createCoalescer as create } from '../../../workers/batch/coalescer.ts';

/** Breaks a worker: it gets every envelope three times. */
export function createCoalescer(...given: Parameters<typeof create>): Coalescer {
  const coalescer = create(...given);
  return {
    ...coalescer,
    async apply(...deliveries) {
      for (let time = 0; time < 3; time++) await coalescer.apply(...deliveries);
    },
  };
}
