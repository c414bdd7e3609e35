import { monitorEventLoopDelay } from 'node:perf_hooks';
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import { type Service, within } from '../platform/lifecycle.ts';
import { poll } from '../platform/poll.ts';
import type { Depth, LaneDepth } from '../queue/depth.ts';
import { readTotals, readUsageToday } from '../store/counters.ts';
import type { Pool } from '../store/database.ts';
import { readSyncState } from '../store/sync-lists.ts';

/** The numbers of one web process, in the names that /metrics shows. */
export function createEdgeMetrics() {
  const registry = new Registry();
  // Event-loop lag and memory come with the defaults.
  collectDefaultMetrics({ register: registry });
  let objects = 0;
  return {
    registry,
    /** Objects that were stored in the queue since the start. */
    objects: () => objects,
    noteAccepted(accepted: number): void {
      objects += accepted;
    },
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

/** Milliseconds between two looks. */
const LOOK = 250;

/** Milliseconds between two samples; the histogram counts them as delay. */
const RESOLUTION = 10;

/** How long what is due waits for its turn in this process: a mean, since a single long turn is over when it is seen. */
export function watchLoopLag() {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION });
  histogram.enable();
  let lag = 0;
  let due = performance.now() + LOOK;

  const looks = poll(LOOK, () => {
    const now = performance.now();
    const mean = histogram.count > 0 ? histogram.mean / 1e6 - RESOLUTION : 0;
    // A turn that has just ended may not be in the histogram yet.
    lag = Math.max(0, mean, now - due);
    due = now + LOOK;
    histogram.reset();
  });

  const service: Service = {
    name: 'event loop',
    async stop() {
      await looks.stop();
      histogram.disable();
    },
  };
  return { ...service, /** Milliseconds, at most 250 ms ago. */ lag: () => lag };
}

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
  const elsewhere = new Counter({
    name: 'penstock_objects_named_elsewhere_total',
    help: 'Objects whose user goes by a name of another lane: nothing orders them with those that use it. 0 with LANES=1.',
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
      [elsewhere, totals.namedElsewhere],
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
