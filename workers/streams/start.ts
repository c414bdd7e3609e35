import type { Service } from '../../src/platform/lifecycle.ts';
import { poll } from '../../src/platform/poll.ts';
import { isDistributed } from '../../src/store/distributed.ts';
import { listDestinations } from '../../src/store/stream-destinations.ts';
import { watchHorizon } from '../../src/store/stream-horizon.ts';
import { leaseDestinations } from '../../src/store/stream-leases.ts';
import { trimLog } from '../../src/store/stream-log.ts';
import { LEASE_MS, type StreamContext } from './context.ts';
import { deliverTo } from './deliver.ts';

/** How often destinations are looked for that have something to get. */
const LEASE_INTERVAL_MS = 500;
/** How often the horizon is looked at, while something is delivered. */
const HORIZON_INTERVAL_MS = 100;
/** The same where each look takes a connection to each node. */
const HORIZON_APART_MS = 500;
/** The same while destinations give way, and get a page every five seconds. */
const HORIZON_YIELDING_MS = 1000;
const METRICS_INTERVAL_MS = 10_000;
const TRIM_INTERVAL_MS = 60_000;
const TRIM_ROWS = 500;
/** Destinations that are told of in metrics. */
const MOST_LISTED = 200;
/** Destinations that one process delivers to at a time: each has a page and a batch in memory. */
const MOST_AT_ONCE = 16;
/** Beside those, files: one may take minutes, and has a part of it in memory. */
const MOST_FILES_AT_ONCE = 8;

export interface StreamsOptions {
  context: Omit<StreamContext, 'horizon'>;
  /** Days that the log is kept. */
  days: number;
  /** Destinations at a time, those of files aside; 16 unless told. */
  atOnce?: number;
}

/**
 * Delivers to destinations of streams, each in a loop of its own, so that a slow or dead one holds up nobody else. Several
 * processes share them by leases in Postgres; that of a process that dies runs out, and another takes over.
 */
export function startStreams({ context, days, atOnce = MOST_AT_ONCE }: StreamsOptions): Service {
  const { pool, metrics, log } = context;
  const leaving = new AbortController();
  const horizon = watchHorizon(pool);
  const places = [
    { gathers: false, most: atOnce, working: new Set<Promise<void>>() },
    { gathers: true, most: MOST_FILES_AT_ONCE, working: new Set<Promise<void>>() },
  ];
  const failed = (error: unknown) => log.warn({ err: error }, 'streams wait for Postgres');

  async function begin({ gathers, most, working }: (typeof places)[number]): Promise<void> {
    const limit = most - working.size;
    if (limit <= 0) return;
    const leased = await leaseDestinations(pool, { milliseconds: LEASE_MS, limit, gathers });
    // Who has a lease delivers, and waits for the horizon by itself.
    if (leased.length > 0) await horizon.look().catch(failed);
    for (const one of leased) {
      const work = deliverTo(one, { ...context, horizon: horizon.horizon }, leaving.signal);
      working.add(work);
      void work.finally(() => {
        working.delete(work);
        // Somebody may wait for the place.
        if (!leaving.signal.aborted) void leases.now();
      });
    }
  }

  const leases = poll(
    LEASE_INTERVAL_MS,
    async () => {
      for (const place of places) await begin(place);
    },
    failed,
  );
  let looked = Number.NEGATIVE_INFINITY;
  const horizons = poll(
    HORIZON_INTERVAL_MS,
    async () => {
      if (places.every(({ working }) => working.size === 0)) return;
      const since = performance.now() - looked;
      if (since < HORIZON_YIELDING_MS && context.yielding.isNeeded()) return;
      if (since < HORIZON_APART_MS && (await isDistributed(pool))) return;
      await horizon.look();
      looked = performance.now();
    },
    failed,
  );
  const numbers = poll(
    METRICS_INTERVAL_MS,
    async () => metrics.note(await listDestinations(pool, { limit: MOST_LISTED })),
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
            'what destinations of streams have not got was trimmed',
          );
      }
    },
    failed,
  );
  void numbers.now();

  return {
    name: 'streams',
    async stop() {
      leaving.abort();
      await Promise.all([leases, horizons, numbers, trims].map((one) => one.stop()));
      await Promise.all(places.flatMap(({ working }) => [...working]));
    },
  };
}
