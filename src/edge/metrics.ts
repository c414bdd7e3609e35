import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, Histogram, type Registry } from 'prom-client';
import type { Service } from '../platform/lifecycle.ts';
import { boundLabel, createRegistry, LOOP_SAMPLE_MS } from '../processes/metrics.ts';
import { rejectionReasons } from '../profile/refusal.ts';

/** Creates the metrics of one web process, under their names in /metrics. */
export function createEdgeMetrics(isAlone = true) {
  const registry = createRegistry('web', isAlone);
  let objects = 0;
  let refusals = 0;
  const shownAs = boundLabel();
  const refused = new Counter({
    name: 'penstock_requests_refused_total',
    help: 'Requests answered with 429 or 503, by status, workspace (50 by id, all others as other) and rate-limit bucket.',
    labelNames: ['status', 'workspace_id', 'bucket'],
    registers: [registry],
  });
  return {
    registry,
    /** Objects that were stored in the queue since the start. */
    objects: () => objects,
    /** Requests that were refused since the start. */
    refusals: () => refusals,
    noteAccepted(accepted: number): void {
      objects += accepted;
    },
    /** Counts a request that was refused by a limit or by load shedding. A company's token has no workspace. */
    noteRefused(status: number, { bucket, workspaceId }: { bucket: string; workspaceId?: string }): void {
      refusals++;
      refused.inc({ status, workspace_id: shownAs(workspaceId), bucket });
    },
    requests: new Counter({
      name: 'penstock_requests_total',
      help: 'Requests answered, by operation and status.',
      labelNames: ['operation', 'status'],
      registers: [registry],
    }),
    duration: new Histogram({
      name: 'penstock_request_seconds',
      help: 'Seconds from the first byte of a request to its response.',
      labelNames: ['operation'],
      buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
      registers: [registry],
    }),
    accepted: new Counter({
      name: 'penstock_objects_accepted_total',
      help: 'Objects that were accepted and stored in the queue.',
      labelNames: ['operation'],
      registers: [registry],
    }),
    rejected: new Counter({
      name: 'penstock_objects_rejected_total',
      help: 'Objects that were refused, each with an error in the response.',
      labelNames: ['operation'],
      registers: [registry],
    }),
    rejectedReasons: countReasons(registry),
    refusalsDropped: new Counter({
      name: 'penstock_refused_objects_dropped_total',
      help: 'Refused objects that the console does not count, because memory was full or Postgres failed.',
      registers: [registry],
    }),
  };
}

/**
 * Counts refused objects by reason. Every reason has a series from the start, so that rates are available at once.
 */
function countReasons(registry: Registry): Counter<'reason'> {
  const counter = new Counter({
    name: 'penstock_objects_rejected_reasons_total',
    help: 'Objects that were refused, by reason.',
    labelNames: ['reason'] as const,
    registers: [registry],
  });
  for (const reason of Object.keys(rejectionReasons)) counter.inc({ reason }, 0);
  return counter;
}

export type EdgeMetrics = ReturnType<typeof createEdgeMetrics>;

/** Milliseconds between two measurements. */
const LOOK = 250;

/**
 * Measures how long due callbacks wait in this process. It is a mean, because a single long turn is over when it is
 * seen.
 * @param sampleMs milliseconds between two samples
 */
export function watchLoopLag(sampleMs = LOOP_SAMPLE_MS) {
  const histogram = monitorEventLoopDelay({ resolution: sampleMs });
  histogram.enable();
  let lag = 0;
  let due = performance.now() + LOOK;

  // Not a poller: pollers may be delayed, which would look like lag.
  const poller = setInterval(() => {
    const now = performance.now();
    // The histogram counts the time between two samples as delay.
    const mean = histogram.count > 0 ? histogram.mean / 1e6 - sampleMs : 0;
    // A turn that has just ended may not be in the histogram yet.
    lag = Math.max(0, mean, now - due);
    due = now + LOOK;
    histogram.reset();
  }, LOOK).unref();

  const service: Service = {
    name: 'event loop',
    async stop() {
      clearInterval(poller);
      histogram.disable();
    },
  };
  return { ...service, /** Milliseconds, at most 250 ms ago. */ lag: () => lag };
}
