import { Counter, Gauge, type Registry } from 'prom-client';
import type { Depth, LaneDepth } from '../queue/depth.ts';
import type { Pool } from '../store/database.ts';
import { readTotals } from '../store/delivery/read-totals.ts';
import { readUsageToday } from '../store/delivery/read-usage-today.ts';
import { readSyncState } from '../store/syncs/read-sync-state.ts';
import { within } from '../within.ts';

/** Milliseconds that whoever asks for the numbers waits for each of their sources. */
const PATIENCE = 1000;

/**
 * The numbers of the whole fleet, read from the queue and the store when somebody asks: every web process
 * shows the same. What cannot be read in time keeps its last figure.
 */
export function addFleetMetrics(registry: Registry, pool: Pool, depth: Depth): { refresh(): Promise<void> } {
  const registers = [registry];
  const depths = new Gauge({
    name: 'penstock_queue_depth',
    help: 'Jobs that wait or are in work, by lane.',
    labelNames: ['lane'],
    registers,
  });
  const oldest = new Gauge({
    name: 'penstock_queue_oldest_seconds',
    help: 'Age of the oldest job that waits or is in work, by lane.',
    labelNames: ['lane'],
    registers,
  });
  const objects = new Counter({
    name: 'penstock_objects_applied_total',
    help: 'Objects that took effect, by all workers.',
    registers,
  });
  const batches = new Counter({
    name: 'penstock_envelopes_applied_total',
    help: 'Envelopes applied by all workers.',
    registers,
  });
  const seconds = new Counter({
    name: 'penstock_apply_seconds_total',
    help: 'Time that all workers spent applying.',
    registers,
  });
  const dead = new Counter({
    name: 'penstock_dead_letters_total',
    help: 'Objects that could not be applied, again at each replay that fails.',
    registers,
  });
  const deadWaiting = new Gauge({
    name: 'penstock_dead_letters_waiting',
    help: 'Dead letters that nobody has replayed.',
    registers,
  });
  const usage = new Gauge({
    name: 'penstock_usage_today',
    help: 'Objects that took effect today (UTC), by workspace and kind.',
    labelNames: ['workspace', 'kind'],
    registers,
  });

  const unfinished = new Gauge({
    name: 'penstock_sync_runs_unfinished',
    help: 'Runs of warehouse integrations that have not ended.',
    registers,
  });
  const oldestRun = new Gauge({
    name: 'penstock_sync_oldest_run_seconds',
    help: 'Time since the oldest run that has not ended was begun.',
    registers,
  });
  const failing = new Gauge({
    name: 'penstock_sync_failing_integrations',
    help: 'Active integrations whose last run ended as error or config_error.',
    registers,
  });

  let asking: Promise<LaneDepth[]> | undefined;

  async function refreshLanes(): Promise<void> {
    // A queue that is away may answer as late as when it is back: it is asked once until then.
    asking ??= depth.lanes().finally(() => {
      asking = undefined;
    });
    for (const lane of await asking) {
      depths.set({ lane: lane.lane }, lane.depth);
      oldest.set({ lane: lane.lane }, lane.oldestSeconds);
    }
  }

  async function refreshTotals(): Promise<void> {
    const totals = await readTotals(pool);
    const counters: [Counter, number][] = [
      [objects, totals.objects],
      [batches, totals.envelopes],
      [seconds, totals.applySeconds],
      [dead, totals.deadLetters],
    ];
    for (const [counter, value] of counters) {
      counter.reset();
      counter.inc(value);
    }
    deadWaiting.set(totals.waitingDeadLetters);
  }

  async function refreshUsage(): Promise<void> {
    const today = await readUsageToday(pool);
    usage.reset();
    for (const { workspace, ...kinds } of today) {
      for (const [kind, count] of Object.entries(kinds)) usage.set({ workspace, kind }, count);
    }
  }

  async function refreshSyncs(): Promise<void> {
    const state = await readSyncState(pool);
    unfinished.set(state.unfinished);
    oldestRun.set(state.oldestSeconds);
    failing.set(state.failing);
  }

  async function refresh(): Promise<void> {
    const parts = [refreshLanes(), refreshTotals(), refreshUsage(), refreshSyncs()];
    await Promise.allSettled(parts.map((part) => within(PATIENCE, part)));
  }

  return { refresh };
}
