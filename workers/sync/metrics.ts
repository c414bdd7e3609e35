import { Counter, Gauge, Histogram } from 'prom-client';
import { boundLabel, createRegistry } from '../../src/processes/metrics.ts';

/** Creates the metrics of one sync process. */
export function createSyncMetrics(isAlone = true) {
  const registry = createRegistry('sync', isAlone);
  const registers = [registry];
  const shownAs = boundLabel();
  const rows = new Counter({
    name: 'penstock_sync_rows_total',
    help: 'Rows of warehouses that this process has finished, by integration and outcome (synced, failed).',
    labelNames: ['integration', 'outcome'],
    registers,
  });
  const runs = new Counter({
    name: 'penstock_sync_runs_ended_total',
    help: 'Runs that this process has finished, by integration and status.',
    labelNames: ['integration', 'status'],
    registers,
  });
  let objects = 0;
  return {
    registry,
    /** Returns the number of rows that were added to the lanes since the start, without failed rows. */
    objects: () => objects,
    /** Counts the finished rows of an integration by its name. */
    noteRows(name: string, { synced, failed }: { synced: number; failed: number }): void {
      objects += synced;
      const integration = shownAs(name);
      rows.inc({ integration, outcome: 'synced' }, synced);
      rows.inc({ integration, outcome: 'failed' }, failed);
    },
    /** Counts a finished run of an integration. */
    noteRun(name: string, status: string): void {
      runs.inc({ integration: shownAs(name), status });
    },
    working: new Gauge({
      name: 'penstock_sync_runs_working',
      help: 'Runs that this process is working on.',
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
      help: 'Times that a run waited because Postgres or the queue was unavailable.',
      registers,
    }),
    chunkSeconds: new Histogram({
      name: 'penstock_sync_chunk_seconds',
      help: 'Seconds from enqueuing a chunk of rows until it took effect, which is the longest delay of a live request behind it.',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
      registers,
    }),
  };
}

export type SyncMetrics = ReturnType<typeof createSyncMetrics>;
