import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** Milliseconds for which a lane counts as worked after its last batch. */
const LATELY_MS = 10_000;

/** The numbers of one worker process, in the names that its /metrics shows. */
export function createWorkerMetrics() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const registers = [registry];
  let ageOfOldest = () => 0;
  const lanesWorked = new Map<number, number>();
  let objects = 0;
  new Gauge({
    name: 'penstock_worker_oldest_envelope_seconds',
    help: 'Age of the oldest envelope that waits or is in work in any lane.',
    registers,
    collect() {
      this.set(ageOfOldest());
    },
  });
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
    /** A batch has ended, with what it held of these lanes. */
    noteBatch(lanes: Iterable<number>, applied: number): void {
      objects += applied;
      for (const lane of lanes) lanesWorked.set(lane, performance.now());
    },
    /** From where the age of the oldest envelope is known. */
    watchAge(age: () => number) {
      ageOfOldest = age;
    },
    batches: new Counter({
      name: 'penstock_worker_batches_total',
      help: 'Transactions, by outcome.',
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
      help: 'Objects that cannot be applied.',
      registers,
    }),
    retries: new Counter({
      name: 'penstock_worker_retries_total',
      help: 'Transactions that were tried again.',
      registers,
    }),
    applySeconds: new Histogram({
      name: 'penstock_worker_apply_seconds',
      help: 'Time of one transaction.',
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
      help: 'Fences between lanes that this process has applied.',
      registers,
    }),
    fenceWaitSeconds: new Histogram({
      name: 'penstock_worker_fence_wait_seconds',
      help: 'Time that a lane has stood at a fence: the first until all others have come, the others until it is passed.',
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10],
      registers,
    }),
  };
}

export type WorkerMetrics = ReturnType<typeof createWorkerMetrics>;
