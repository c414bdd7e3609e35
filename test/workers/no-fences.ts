import { createLog } from '../../src/platform/log.ts';
import type { Pool } from '../../src/store/database.ts';
import { Fences } from '../../workers/fence/fences.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';

/** Creates the fences of a worker whose queries about fences have no answer rows. */
export function silentFences(lanes = 1): Fences {
  const pool = { query: async () => ({ rows: [] }) } as unknown as Pool;
  const layout = { shards: 1, lanes };
  return new Fences({ pool, layout, metrics: createWorkerMetrics(), log: createLog('test', 'silent') });
}
