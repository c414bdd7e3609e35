import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';

/** The numbers of one sync process, in the names that its /metrics shows. */
export function createSyncMetrics() {
  const registry = new Registry();
  collectDefaultMetrics({ register: registry });
  const registers = [registry];
  return {
    registry,
    rows: new Counter({
      name: 'penstock_sync_rows_total',
      help: 'Rows of warehouses that this process has settled, by outcome: synced or failed.',
      labelNames: ['outcome'],
      registers,
    }),
    runs: new Counter({
      name: 'penstock_sync_runs_ended_total',
      help: 'Runs that ended in this process, by status.',
      labelNames: ['status'],
      registers,
    }),
    working: new Gauge({
      name: 'penstock_sync_runs_working',
      help: 'Runs that this process has in hand.',
      registers,
    }),
    skipped: new Counter({
      name: 'penstock_sync_scheduled_skipped_total',
      help: 'Scheduled runs that were not started, by reason.',
      labelNames: ['reason'],
      registers,
    }),
    retries: new Counter({
      name: 'penstock_sync_retries_total',
      help: 'Times that a run had to wait for Postgres or the queue to come back.',
      registers,
    }),
    chunkSeconds: new Histogram({
      name: 'penstock_sync_chunk_seconds',
      help: 'Time from the hand-over of a chunk of rows until it has taken effect: what a live request behind it waits.',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
      registers,
    }),
  };
}

export type SyncMetrics = ReturnType<typeof createSyncMetrics>;
