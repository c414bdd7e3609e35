import { Counter, Histogram } from 'prom-client';
import { now as readClock } from '../src/platform/clock.ts';
import { createRegistry } from '../src/processes/metrics.ts';
import { laneName } from '../src/queue/lanes.ts';

/** Milliseconds after its last batch for which a lane counts as being worked. */
const LATELY_MS = 10_000;

/** Counts of a batch that has ended. */
interface BatchCounts {
  /** Lanes whose envelopes were in the batch. */
  lanes: number[];
  /** Number of objects that took effect. */
  applied: number;
  /** Finished envelopes; `acceptedAt` is in epoch milliseconds, undefined if unknown or if the envelope is a replay. */
  finished: { lane: number; acceptedAt: number | undefined }[];
}

/** Creates the metrics of a worker process, as exposed at /metrics. */
export function createWorkerMetrics(isAlone = true) {
  const registry = createRegistry('worker', isAlone);
  const registers = [registry];
  const envelopes = new Counter({
    name: 'penstock_worker_envelopes_applied_total',
    help: 'Jobs that took effect, by lane.',
    labelNames: ['lane'],
    registers,
  });
  const effectSeconds = new Histogram({
    name: 'penstock_worker_effect_seconds',
    help: 'Seconds from the acceptance of a job (by the clock of web) until it took effect, without replays.',
    buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800],
    registers,
  });
  const lanesWorked = new Map<number, number>();
  let objects = 0;
  return {
    registry,
    /** Returns the number of objects that have taken effect since the process started. */
    objects: () => objects,
    /** Returns the lanes with a batch that ended within the last ten seconds, in order. */
    lanes: () =>
      [...lanesWorked]
        .filter(([, at]) => performance.now() - at < LATELY_MS)
        .map(([lane]) => lane)
        .sort((a, b) => a - b),
    /** Counts a batch that has ended. */
    noteBatch({ lanes, applied, finished }: BatchCounts): void {
      objects += applied;
      const at = performance.now();
      for (const lane of lanes) lanesWorked.set(lane, at);
      const now = readClock();
      for (const { lane, acceptedAt } of finished) {
        envelopes.inc({ lane: laneName(lane) });
        // The clocks of web and worker may differ, so the difference can be negative.
        if (acceptedAt !== undefined) effectSeconds.observe(Math.max(0, now - acceptedAt) / 1000);
      }
    },
    batches: new Counter({
      name: 'penstock_worker_batches_total',
      help: 'Transactions of this worker, by outcome.',
      labelNames: ['outcome'],
      registers,
    }),
    applied: new Counter({
      name: 'penstock_worker_objects_applied_total',
      help: 'Objects that took effect.',
      registers,
    }),
    deadLetters: new Counter({
      name: 'penstock_worker_dead_letters_total',
      help: 'Objects that could not be applied, including each failed replay.',
      registers,
    }),
    setAside: new Counter({
      name: 'penstock_worker_objects_set_aside_total',
      help: 'Objects that became dead letters because they ended two worker processes.',
      registers,
    }),
    retries: new Counter({
      name: 'penstock_worker_retries_total',
      help: 'Transactions that were retried.',
      registers,
    }),
    applySeconds: new Histogram({
      name: 'penstock_worker_apply_seconds',
      help: 'Seconds for one transaction.',
      buckets: [0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
      registers,
    }),
    batchObjects: new Histogram({
      name: 'penstock_worker_batch_objects',
      help: 'Objects in one transaction.',
      buckets: [1, 10, 75, 225, 500, 1000, 2000, 4000, 8000, 16_000],
      registers,
    }),
    fences: new Counter({
      name: 'penstock_worker_fences_total',
      help: 'Fences (objects that are ordered in several lanes) that this process has applied.',
      registers,
    }),
    fenceWaitSeconds: new Histogram({
      name: 'penstock_worker_fence_wait_seconds',
      help: 'Seconds for which a workspace waited at a fence in a lane: in its home lane until all other lanes arrived, in the others until the fence was passed.',
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
  };
}

export type WorkerMetrics = ReturnType<typeof createWorkerMetrics>;
