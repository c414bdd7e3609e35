import { Registry } from 'prom-client';
import { addProxyMetric } from '../../src/edge/copies.ts';
import { addFleetMetrics, type FleetSources } from '../../src/edge/fleet-metrics.ts';
import {
  addBacklogMetric,
  createLoadShedding,
  highWaterMarks,
  type Loads,
} from '../../src/edge/load-shedding.ts';
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
import { createStreamMetrics } from '../../workers/streams/metrics.ts';
import { createSyncMetrics } from '../../workers/sync/metrics.ts';
import { createRetentionMetrics } from '../../workers/sync/retention.ts';
import { createExportMetric } from '../../workers/sync/segment-exports.ts';

const zero = () => 0;
const loads: Loads = {
  depth: { waiting: zero, maxWaiting: zero, isCurrent: () => true },
  memory: { usedPercent: zero, maxBytes: zero, isCurrent: () => true },
  shares: { partOf: zero, bytesOf: zero },
  loop: { lag: zero },
  reading: { held: zero, small: { held: 0 } },
  responses: { held: zero },
  queue: { pending: zero, pendingBytes: zero },
};

/** Registers the metrics that each web process reads for the whole installation, without a store. */
function addInstallationMetrics(registry: Registry): void {
  const sources = {
    pool: { on() {} },
    connection: {},
    depth: { lanes: async () => [] },
    oldest: { ages: () => undefined, standstill: zero },
    lanes: 1,
    dataDir: '.',
  };
  addFleetMetrics(registry, sources as unknown as FleetSources);
}

/** Registers the metrics of each process without a store. Only names, types, labels and help texts are used. */
export function registries(): Record<ProcessName, Registry> {
  const web = createEdgeMetrics().registry;
  createLoadShedding(highWaterMarks(readConfig({}), loads), web);
  addBacklogMetric(web, zero);
  addInstallationMetrics(web);
  addProxyMetric(web);
  const worker = createWorkerMetrics().registry;
  addOldestMetric(worker, () => undefined);
  const sync = createSyncMetrics().registry;
  createStreamMetrics(sync);
  createExportMetric(sync);
  new HeldWork(sync);
  new JobAttempts({ pool: {} as never, processId: '', log: {} as never, registry: sync });
  createRetentionMetrics(sync);
  const byProcess = { web, worker, sync, board: createRegistry('board') };
  for (const registry of Object.values(byProcess)) {
    addDependencyMetric(registry, () => []);
    addClockMetric(registry, () => undefined);
    addLossMetric(registry, () => undefined);
    addSpanMetric(registry, { exported: 0 });
  }
  return byProcess;
}

export interface Exported {
  name: string;
  help: string;
  type: 'counter' | 'gauge' | 'histogram' | 'summary';
  labels: string[];
  /** Processes that export the metric. */
  processes: ProcessName[];
  /** Whether web reads the value for the whole installation. */
  isOfInstallation: boolean;
}

/** Returns every exported metric once. */
export function exported(): Exported[] {
  const ofInstallation = new Registry();
  addInstallationMetrics(ofInstallation);
  const all = new Map<string, Exported>();
  for (const [process, registry] of Object.entries(registries()))
    for (const metric of registry.getMetricsAsArray()) {
      const { name, help, labelNames, type } = metric as unknown as {
        name: string;
        help: string;
        labelNames?: string[];
        type: Exported['type'];
      };
      const processes = [...(all.get(name)?.processes ?? []), process as ProcessName];
      const isOfInstallation = ofInstallation.getSingleMetric(name) !== undefined;
      all.set(name, { name, help, type, labels: [...(labelNames ?? [])], processes, isOfInstallation });
    }
  return [...all.values()];
}
