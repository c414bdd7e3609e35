import { swapped } from './swapped.ts';

/** The compiled module that each breaks. */
const breaks = {
  'acknowledges-early': 'workers/batch/coalescer.js',
  'without-ledger': 'src/store/ledger.js',
  'overtaken-retry': 'workers/batch/coalescer.js',
} as const;

export type Breakage = keyof typeof breaks;

/** The environment of a worker process that is broken in this way. */
export function brokenWorker(breakage: Breakage): Record<string, string> {
  return swapped(breaks[breakage], `tools/chaos/broken/${breakage}.js`);
}
