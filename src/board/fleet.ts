import type { Problem } from '../checks/check.ts';
import { createReader } from '../checks/read.ts';
import type { Lacking, Readings } from '../checks/readings.ts';
import { findProblems } from '../checks/registry.ts';
import type { Config } from '../platform/config.ts';
import { withTimeout } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { type LayoutSettings, laneCount } from '../queue/lanes.ts';
import type { Database } from '../store/database.ts';
import { type FleetCounters, readFleetCounters } from '../store/health.ts';

/** Milliseconds for which a reading is reused. Any number of viewers causes one query of the stores. */
const FRESH_MS = 300;

/** Minimum and maximum milliseconds between the two readings from which a rate is calculated. */
const MIN_INTERVAL_MS = 4000;
const MAX_INTERVAL_MS = 120_000;

/** Timeout in milliseconds for the counters. No problem depends on them. */
const COUNTERS_MS = 1000;

/** The fleet at one point in time. Values that could not be read are undefined. */
export interface FleetState extends Readings {
  /** Problems, most severe first. */
  problems: Problem[];
  counters: FleetCounters | undefined;
  /** Dead letters per second, and applied objects per second by lane, since an earlier reading. */
  rates: Rates | undefined;
}

export interface Rates {
  deadLetters: number;
  lanes: (number | undefined)[];
}

interface Counted {
  at: number;
  counters: FleetCounters;
}

interface FleetOptions {
  database: Pick<Database, 'pool'>;
  connection: QueueConnection;
  config: LayoutSettings & Pick<Config, 'DATA_DIR'>;
  lacking(): Lacking[];
  rejectsWrites?(): Readings['rejectsWrites'];
  log?: Log;
}

/**
 * Creates a shared reader for the state of the fleet. Pages, streams and the history reuse its readings for FRESH_MS.
 */
export function createFleet({
  database: { pool },
  connection,
  config,
  lacking,
  rejectsWrites,
  log,
}: FleetOptions) {
  const queue = { kind: connection.kind, connection, lanes: laneCount(config) };
  const stores = { pool, queue, dataDir: config.DATA_DIR };
  const reader = createReader(stores, { log, readsOnce: false }, { lacking, rejectsWrites });
  let past: Counted[] = [];
  let last: { takenAt: number; state: Promise<FleetState> } | undefined;
  let begun = new Map<string, Date>();

  function ratesOf(counters: FleetCounters): Rates | undefined {
    const now = { at: performance.now(), counters };
    past = past.filter(({ at }) => now.at - at < MAX_INTERVAL_MS);
    // Prefer the latest reading that is old enough.
    const before = past.findLast(({ at }) => now.at - at >= MIN_INTERVAL_MS) ?? past[0];
    past.push(now);
    return before && ratesBetween(before, now);
  }

  /** Sets the start of each problem without one to the time at which this process first saw it. */
  function dated(problems: Problem[], at: Date): Problem[] {
    const before = begun;
    begun = new Map();
    return problems.map((problem) => {
      const key = `${problem.id} ${problem.subject}`;
      const since = problem.since ?? before.get(key) ?? at;
      begun.set(key, since);
      return { ...problem, since };
    });
  }

  async function take(): Promise<FleetState> {
    const readings = await reader.read();
    const counters = readings.processes
      ? await withTimeout(COUNTERS_MS, readFleetCounters(pool, laneCount(config))).catch(() => undefined)
      : undefined;
    return {
      ...readings,
      problems: dated(findProblems(readings, 'fleet'), readings.at),
      ...{ counters, rates: counters && ratesOf(counters) },
    };
  }

  return {
    /** Reads the fleet. Never rejects. */
    read(): Promise<FleetState> {
      if (last && performance.now() - last.takenAt < FRESH_MS) return last.state;
      // A pending reading is reused however long the stores take.
      const taking = { takenAt: Number.POSITIVE_INFINITY, state: take() };
      last = taking;
      return taking.state.finally(() => {
        taking.takenAt = performance.now();
      });
    },
  };
}

export type Fleet = ReturnType<typeof createFleet>;

/**
 * Calculates rates between two readings. If a counter was reset, a lane's rate is undefined and the dead-letter rate is
 * 0.
 */
function ratesBetween(before: Counted, now: Counted): Rates {
  const seconds = Math.max(0.001, (now.at - before.at) / 1000);
  const rate = (later: number, earlier: number | undefined) =>
    earlier === undefined || later < earlier ? undefined : (later - earlier) / seconds;
  return {
    deadLetters: rate(now.counters.deadLetters, before.counters.deadLetters) ?? 0,
    lanes: now.counters.applied.map((objects, lane) => rate(objects, before.counters.applied[lane])),
  };
}
