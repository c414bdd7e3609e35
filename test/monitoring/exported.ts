import type { Registry } from 'prom-client';
import { addProxyMetric } from '../../src/edge/copies.ts';
import { addFleetMetrics, type FleetSources } from '../../src/edge/fleet-metrics.ts';
import { createLoadShedding, highWaterMarks, type Loads } from '../../src/edge/load-shedding.ts';
import { createEdgeMetrics } from '../../src/edge/metrics.ts';
import { readConfig } from '../../src/platform/config.ts';
import {
  addClockMetric,
  addDependencyMetric,
  addOldestMetric,
  addSpanMetric,
  createRegistry,
} from '../../src/processes/metrics.ts';
import { addLossMetric } from '../../src/queue/loss.ts';
import type { ProcessName } from '../../src/store/processes.ts';
import { HeldWork } from '../../workers/jobs/held-work.ts';
import { JobAttempts } from '../../workers/jobs/job-attempts.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { createStreamMetrics } from '../../workers/streams/context.ts';
import { createSyncMetrics } from '../../workers/sync/context.ts';
import { createRetentionMetrics } from '../../workers/sync/retention.ts';
import { createExportMetric } from '../../workers/sync/segment-exports.ts';

const zero = () => 0;
const loads: Loads = {
  depth: { waiting: zero, mostWaiting: zero, known: () => true },
  memory: { usedPercent: zero, known: () => true },
  loop: { lag: zero },
  reading: { held: zero, small: { held: zero } },
  responses: { held: zero },
  queue: { pending: zero, pendingBytes: zero },
};

/** What each process registers, with no store behind it: names, types and labels are all that is looked at. */
export function registries(): Record<ProcessName, Registry> {
  const web = createEdgeMetrics().registry;
  createLoadShedding(highWaterMarks(readConfig({}), loads), web);
  const sources = {
    pool: { on() {} },
    connection: {},
    depth: { lanes: async () => [] },
    oldest: { ages: () => undefined, standstill: zero },
    lanes: 1,
    dataDir: '.',
  };
  addFleetMetrics(web, sources as unknown as FleetSources);
  const worker = createWorkerMetrics().registry;
  addOldestMetric(worker, () => undefined);
  const sync = createSyncMetrics().registry;
  createStreamMetrics(sync);
  createExportMetric(sync);
  new HeldWork(sync);
  new JobAttempts({ pool: {} as never, processId: '', log: {} as never, registry: sync });
  createRetentionMetrics(sync);
  const found = { web, worker, sync, board: createRegistry('board') };
  for (const registry of Object.values(found)) {
    addDependencyMetric(registry, () => []);
    addClockMetric(registry, () => undefined);
    addLossMetric(registry, () => undefined);
    addProxyMetric(registry);
    addSpanMetric(registry, { exported: 0 });
  }
  return found;
}

export interface Exported {
  name: string;
  help: string;
  type: 'counter' | 'gauge' | 'histogram' | 'summary';
  labels: string[];
}

/** Every metric that some process exports, once. */
export function exported(): Exported[] {
  const all = new Map<string, Exported>();
  for (const registry of Object.values(registries()))
    for (const metric of registry.getMetricsAsArray()) {
      const { name, help, labelNames, type } = metric as unknown as {
        name: string;
        help: string;
        labelNames?: string[];
        type: Exported['type'];
      };
      all.set(name, { name, help, type, labels: [...(labelNames ?? [])] });
    }
  return [...all.values()];
}
