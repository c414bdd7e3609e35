import { Counter, collectDefaultMetrics, Histogram, Registry } from 'prom-client';

/** The numbers of one web process, in the names that /metrics shows. */
export function createEdgeMetrics() {
  const registry = new Registry();
  // Event-loop lag and memory come with the defaults.
  collectDefaultMetrics({ register: registry });
  return {
    registry,
    requests: new Counter({
      name: 'penstock_requests_total',
      help: 'Requests answered, by operation and status.',
      labelNames: ['operation', 'status'],
      registers: [registry],
    }),
    duration: new Histogram({
      name: 'penstock_request_seconds',
      help: 'Time from the first byte of a request to its answer.',
      labelNames: ['operation'],
      buckets: [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
      registers: [registry],
    }),
    accepted: new Counter({
      name: 'penstock_objects_accepted_total',
      help: 'Objects that were stored in the queue.',
      labelNames: ['operation'],
      registers: [registry],
    }),
    rejected: new Counter({
      name: 'penstock_objects_rejected_total',
      help: 'Objects that were refused with an error of their own.',
      labelNames: ['operation'],
      registers: [registry],
    }),
  };
}

export type EdgeMetrics = ReturnType<typeof createEdgeMetrics>;
