import type { Problem } from '../checks/check.ts';
import { createReader } from '../checks/read.ts';
import type { Lacking, Readings } from '../checks/readings.ts';
import { findProblems } from '../checks/registry.ts';
import type { Config } from '../platform/config.ts';
import { within } from '../platform/lifecycle.ts';
import type { QueueConnection } from '../queue/connection.ts';
import { type LayoutSettings, laneCount } from '../queue/lanes.ts';
import type { Database } from '../store/database.ts';
import { type FleetCounters, readFleetCounters } from '../store/health.ts';

/** Milliseconds for which a look is given again: however many people look, the stores are asked once. */
const FRESH_MS = 300;

/** Milliseconds between the two looks that a rate of counters is made from. */
const SHORTEST_MS = 4000;
const LONGEST_MS = 120_000;

/** Milliseconds for the counters, which no sentence rests on. */
const COUNTERS_MS = 1000;

/** The fleet at one moment; what is undefined could not be had. */
export interface FleetState extends Readings {
  /** The most severe first. */
  problems: Problem[];
  counters: FleetCounters | undefined;
  /** Dead letters a second, and applied objects a second by lane; between this look and one before. */
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

export interface FleetOptions {
  database: Pick<Database, 'pool'>;
  connection: QueueConnection;
  config: LayoutSettings & Pick<Config, 'DATA_DIR'>;
  lacking(): Lacking[];
  rejectsWrites?(): Readings['rejectsWrites'];
}

/** Looks at the whole fleet. Whoever asks within a moment gets the same look: pages, streams and the history. */
export function createFleet({
  database: { pool },
  connection,
  config,
  lacking,
  rejectsWrites,
}: FleetOptions) {
  const reader = createReader({
    ...{ pool, connection, queue: connection.kind, lanes: laneCount(config), dataDir: config.DATA_DIR },
    ...{ lacking, ...(rejectsWrites && { rejectsWrites }), readsOnce: false },
  });
  let past: Counted[] = [];
  let last: { takenAt: number; look: Promise<FleetState> } | undefined;
  let begun = new Map<string, Date>();

  function ratesOf(counters: FleetCounters): Rates | undefined {
    const now = { at: performance.now(), counters };
    past = past.filter(({ at }) => now.at - at < LONGEST_MS);
    // The latest that lies far enough back.
    const before = past.findLast(({ at }) => now.at - at >= SHORTEST_MS) ?? past[0];
    past.push(now);
    return before && ratesBetween(before, now);
  }

  /** Adds to each problem since when this process has seen it, where nothing else tells. */
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
      ? await within(COUNTERS_MS, readFleetCounters(pool, laneCount(config))).catch(() => undefined)
      : undefined;
    return {
      ...readings,
      problems: dated(findProblems(readings, 'fleet'), readings.at),
      ...{ counters, rates: counters && ratesOf(counters) },
    };
  }

  return {
    /** Never rejects. */
    look(): Promise<FleetState> {
      if (last && performance.now() - last.takenAt < FRESH_MS) return last.look;
      // One that is under way is waited for, however long a store keeps it.
      const taking = { takenAt: Number.POSITIVE_INFINITY, look: take() };
      last = taking;
      return taking.look.finally(() => {
        taking.takenAt = performance.now();
      });
    },
  };
}

export type Fleet = ReturnType<typeof createFleet>;

/** Counters that have fallen were set back: nothing is known then. */
export function ratesBetween(before: Counted, now: Counted): Rates {
  const seconds = Math.max(0.001, (now.at - before.at) / 1000);
  const rate = (later: number, earlier: number | undefined) =>
    earlier === undefined || later < earlier ? undefined : (later - earlier) / seconds;
  return {
    deadLetters: rate(now.counters.deadLetters, before.counters.deadLetters) ?? 0,
    lanes: now.counters.applied.map((objects, lane) => rate(objects, before.counters.applied[lane])),
  };
}
