import { Counter, Histogram } from 'prom-client';
import { now as readClock } from '../src/platform/clock.ts';
import { createRegistry } from '../src/processes/metrics.ts';
import { laneName } from '../src/queue/lanes.ts';

/** Milliseconds for which a lane counts as worked after its last batch. */
const LATELY_MS = 10_000;

/** What counts of a batch that has ended. */
export interface BatchCounts {
  /** Those of which it held something. */
  lanes: number[];
  /** Objects that took effect. */
  applied: number;
  /** Envelopes of which nothing is left; when each was accepted in epoch ms, unless it is not known or a replay. */
  finished: { lane: number; acceptedAt: number | undefined }[];
}

/** The numbers of one worker process, in the names that its /metrics shows. */
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
    /** Objects that took effect since the start. */
    objects: () => objects,
    /** Lanes of which something ended within the last ten seconds, in order. */
    lanes: () =>
      [...lanesWorked]
        .filter(([, at]) => performance.now() - at < LATELY_MS)
        .map(([lane]) => lane)
        .sort((a, b) => a - b),
    /** A batch has ended. */
    noteBatch({ lanes, applied, finished }: BatchCounts): void {
      objects += applied;
      const at = performance.now();
      for (const lane of lanes) lanesWorked.set(lane, at);
      const now = readClock();
      for (const { lane, acceptedAt } of finished) {
        envelopes.inc({ lane: laneName(lane) });
        // The clocks of two machines may differ.
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
      help: 'Fences (points at which lanes wait for each other) that this process has applied.',
      registers,
    }),
    fenceWaitSeconds: new Histogram({
      name: 'penstock_worker_fence_wait_seconds',
      help: 'Seconds for which a lane waited at a fence: the first lane until all others arrived, the others until the fence was passed.',
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
  };
}

export type WorkerMetrics = ReturnType<typeof createWorkerMetrics>;
