import type { Log } from '../../src/platform/log.ts';
import type { WorkerMetrics } from '../metrics.ts';
import type { BatchResult } from './failures.ts';
import type { Delivery } from './open.ts';

export interface EndedBatch {
  deliveries: Delivery[];
  result: BatchResult;
  milliseconds: number;
}

/** One line in the log and the counts of a transaction that has ended. */
export function reportBatch(
  { deliveries, result, milliseconds }: EndedBatch,
  { metrics, log }: { metrics: WorkerMetrics; log: Log },
): void {
  const { objects, deadLetters } = result.kind === 'applied' ? result : { objects: 0, deadLetters: [] };
  metrics.batches.inc({ outcome: result.kind });
  metrics.applied.inc(objects);
  metrics.deadLetters.inc(deadLetters.length);
  metrics.applySeconds.observe(milliseconds / 1000);
  metrics.batchObjects.observe(objects);
  log.info(
    {
      outcome: result.kind,
      jobs: deliveries.map(({ id }) => id),
      lanes: deliveries.map(({ lane }) => lane),
      request_ids: deliveries.flatMap(requestIds),
      applied: objects,
      dead_letters: deadLetters.length,
      ms: Math.round(milliseconds * 10) / 10,
    },
    'job',
  );
}

/** Of whatever a lane held: an envelope of another release may have a shape of its own. */
function requestIds({ envelope }: Delivery): string[] {
  return Array.isArray(envelope?.requests) ? envelope.requests.map((request) => request?.request_id) : [];
}
