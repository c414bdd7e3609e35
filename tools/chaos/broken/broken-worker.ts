import { swapped } from './swapped.ts';

/** The compiled module that each breakage replaces. */
const breaks = {
  'acknowledges-early': 'workers/lane/scheduler.js',
  'without-ledger': 'src/store/ledger.js',
  'overtaken-retry': 'workers/lane/scheduler.js',
} as const;

export type Breakage = keyof typeof breaks;

/** Returns the environment of a worker process with this breakage. */
export function brokenWorker(breakage: Breakage): Record<string, string> {
  return swapped(breaks[breakage], `tools/chaos/broken/${breakage}.js`);
}
