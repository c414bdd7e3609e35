import type { Service } from '../../src/platform/lifecycle.ts';
import type { Log } from '../../src/platform/log.ts';
import { poll } from '../../src/platform/poll.ts';
import type { Pool } from '../../src/store/database.ts';
import { isDistributed } from '../../src/store/distributed.ts';
import type { HorizonWatch } from '../../src/store/horizon.ts';
import { listDestinations, trimLog } from '../../src/store/stream-destinations.ts';
import { leaseDestinations } from '../../src/store/stream-leases.ts';
import type { StreamDeliveries } from './deliver.ts';
import { LEASE_MS } from './leased-cursor.ts';
import type { StreamMetrics } from './metrics.ts';
import type { Yielding } from './yielding.ts';

/** Milliseconds between two searches for destinations with messages to deliver. */
const LEASE_INTERVAL_MS = 500;
/** A process without a destination runs only every fourth search. */
const IDLE_SEARCH_FACTOR = 4;
/** Milliseconds between two reads of the horizon during a delivery. */
const HORIZON_INTERVAL_MS = 100;
/**
 * Milliseconds between two reads of the horizon in a distributed database, where each read takes a connection
 * to each node.
 */
const HORIZON_DISTRIBUTED_MS = 500;
/**
 * Milliseconds between two reads of the horizon while destinations yield and read a page every five seconds.
 */
const HORIZON_YIELDING_MS = 1000;
const METRICS_INTERVAL_MS = 10_000;
const TRIM_INTERVAL_MS = 60_000;
const TRIM_ROWS = 500;
/** Maximum number of destinations in the metrics. */
const MAX_LISTED = 200;
/**
 * Maximum number of destinations that a process delivers to concurrently. Each has a page and a batch in
 * memory.
 */
const MAX_DESTINATIONS = 16;
/** Maximum number of additional file destinations. A file may take minutes, and a part of it is in memory. */
const MAX_FILES = 8;

const failedBy = (log: Log) => (error: unknown) =>
  log.warn({ err: error }, 'streams are waiting for Postgres');

interface StreamsOptions {
  pool: Pool;
  horizon: HorizonWatch;
  deliveries: StreamDeliveries;
  yielding: Pick<Yielding, 'isNeeded'>;
  log: Log;
  /** Maximum number of concurrent destinations without files; default 16. */
  atOnce?: number;
}

/**
 * Delivers to the destinations of streams, each in its own loop, so that a slow or unreachable destination
 * does not delay others. Processes share the destinations by leases in Postgres. The lease of a process that
 * dies expires, and another process takes over.
 */
export function startStreams({
  pool,
  horizon,
  deliveries,
  yielding,
  log,
  atOnce = MAX_DESTINATIONS,
}: StreamsOptions): Service {
  const leaving = new AbortController();
  const slots = [
    { gathers: false, max: atOnce, working: new Set<Promise<void>>() },
    { gathers: true, max: MAX_FILES, working: new Set<Promise<void>>() },
  ];
  const failed = failedBy(log);

  async function begin({ gathers, max, working }: (typeof slots)[number]): Promise<void> {
    const limit = max - working.size;
    if (limit <= 0) return;
    const leased = await leaseDestinations(pool, { milliseconds: LEASE_MS, limit, gathers });
    // The loop of a leased destination waits for the horizon by itself.
    if (leased.length > 0) await horizon.check().catch(failed);
    for (const one of leased) {
      const work = deliveries.deliver(one, leaving.signal);
      working.add(work);
      void work.finally(() => {
        working.delete(work);
        // Another destination may be waiting for the slot.
        if (!leaving.signal.aborted) void leases.now();
      });
    }
  }

  let omitted = 0;
  const leases = poll(
    LEASE_INTERVAL_MS,
    async () => {
      if (slots.every(({ working }) => working.size === 0) && ++omitted < IDLE_SEARCH_FACTOR) return;
      omitted = 0;
      for (const group of slots) await begin(group);
    },
    failed,
  );
  let readAt = Number.NEGATIVE_INFINITY;
  const horizons = poll(
    HORIZON_INTERVAL_MS,
    async () => {
      if (slots.every(({ working }) => working.size === 0)) return;
      const since = performance.now() - readAt;
      if (since < HORIZON_YIELDING_MS && yielding.isNeeded()) return;
      if (since < HORIZON_DISTRIBUTED_MS && (await isDistributed(pool))) return;
      await horizon.check();
      readAt = performance.now();
    },
    failed,
  );

  return {
    name: 'streams',
    async stop() {
      leaving.abort();
      await Promise.all([leases.stop(), horizons.stop()]);
      await Promise.all(slots.flatMap(({ working }) => [...working]));
    },
  };
}

interface UpkeepOptions {
  pool: Pool;
  metrics: Pick<StreamMetrics, 'note'>;
  log: Log;
  /** Days for which the log is kept. */
  days: number;
}

/** Keeps the metrics of the destinations current, and trims the log. */
export function startStreamUpkeep({ pool, metrics, log, days }: UpkeepOptions): Service {
  const leaving = new AbortController();
  const failed = failedBy(log);
  const numbers = poll(
    METRICS_INTERVAL_MS,
    async () => metrics.note(await listDestinations(pool, { limit: MAX_LISTED })),
    failed,
  );
  const trims = poll(
    TRIM_INTERVAL_MS,
    async () => {
      for (let gone = TRIM_ROWS; gone === TRIM_ROWS && !leaving.signal.aborted; ) {
        const trimmed = await trimLog(pool, days, TRIM_ROWS);
        gone = trimmed.gone;
        if (trimmed.lost.length > 0)
          log.error(
            { destinations: trimmed.lost, days },
            'stream log was trimmed before destinations received all changes',
          );
      }
    },
    failed,
  );
  void numbers.now();
  return {
    name: 'stream upkeep',
    async stop() {
      leaving.abort();
      await Promise.all([numbers.stop(), trims.stop()]);
    },
  };
}
