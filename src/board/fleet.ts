import type { Config } from '../platform/config.ts';
import { type Disk, type RedisHealth, readDisk, readHealth } from '../processes/surroundings.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { LaneDepths, LaneNow } from '../queue/depth.ts';
import { type LayoutSettings, laneCount } from '../queue/lanes.ts';
import type { Database, Pool } from '../store/database.ts';
import { countWaiting } from '../store/dead-letters.ts';
import { type FleetCounters, readFleetCounters, readPostgresHealth } from '../store/health.ts';
import type { QueueLoss } from '../store/installation.ts';
import { listProcesses, type SeenProcess, SILENT_SECONDS } from '../store/processes.ts';
import { readSyncState } from '../store/sync-lists.ts';

/** Dead letters that are counted at a look; the page about them counts by group. */
export const MOST_LETTERS = 10_000;

/** Milliseconds for which a look is given again: however many people look, the stores are asked once. */
const FRESH_MS = 1000;

/** Milliseconds between the two looks that a rate of counters is made from. */
const SHORTEST_MS = 4000;
const LONGEST_MS = 120_000;

/** How a store answers. */
export interface StoreState {
  /** Milliseconds. */
  latency: number;
  /** What is used of what there is: connections, or bytes of memory; 0: there is no limit. */
  used: number;
  most: number;
}

/** The fleet at one moment; what is undefined could not be had. */
export interface FleetState {
  at: Date;
  /** What the board itself cannot do without and does not have, by name. */
  missing: string[];
  processes: SeenProcess[] | undefined;
  lanes: LaneNow[] | undefined;
  counters: FleetCounters | undefined;
  /** Dead letters a second, and applied objects a second by lane; between this look and one before. */
  rates: Rates | undefined;
  /** Dead letters that wait; one more than MOST_LETTERS: there are more. */
  letters: number | undefined;
  failingSyncs: number;
  /** `readOnly`: it answers and takes no writes. */
  postgres: (StoreState & { readOnly: boolean }) | undefined;
  redis: (StoreState & RedisHealth) | undefined;
  /** Of DATA_DIR, where an embedded Postgres lies; undefined: there is no such folder here. */
  disk: Disk | undefined;
  /** What the queue has lost and nobody has confirmed. */
  loss: QueueLoss | undefined;
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
  depths: LaneDepths;
  config: LayoutSettings & Pick<Config, 'DATA_DIR'>;
  missing(): string[];
  loss(): QueueLoss | undefined;
}

/** Looks at the whole fleet. Whoever asks within a second gets the same look: pages, streams and the history. */
export function createFleet(options: FleetOptions) {
  const { connection, depths, config, missing, loss } = options;
  const { pool } = options.database;
  let past: Counted[] = [];
  let last: { takenAt: number; look: Promise<FleetState> } | undefined;

  function ratesOf(counters: FleetCounters): Rates | undefined {
    const now = { at: performance.now(), counters };
    past = past.filter(({ at }) => now.at - at < LONGEST_MS);
    // The latest that lies far enough back.
    const before = past.findLast(({ at }) => now.at - at >= SHORTEST_MS) ?? past[0];
    past.push(now);
    return before && ratesBetween(before, now);
  }

  async function take(): Promise<FleetState> {
    // A store that is known to be away is not waited for.
    const begun = performance.now();
    const processes = await quietly(listProcesses(pool));
    const latency = performance.now() - begun;
    const ofStore = <T>(ask: (from: Pool) => Promise<T>) => processes && quietly(ask(pool));
    const [lanes, redis, disk, letters, [counters, syncs, health]] = await Promise.all([
      depths.read(),
      pingRedis(connection),
      readDisk('data', config.DATA_DIR),
      ofStore((from) => countWaiting(from, MOST_LETTERS + 1)),
      // One after the other: pages need connections, too.
      (async () =>
        [
          await ofStore((from) => readFleetCounters(from, laneCount(config))),
          await ofStore(readSyncState),
          await ofStore(readPostgresHealth),
        ] as const)(),
    ]);
    return {
      ...{ at: new Date(), missing: missing(), processes, lanes, redis, disk, letters, counters },
      rates: counters && ratesOf(counters),
      ...{ failingSyncs: syncs?.failing ?? 0, loss: loss() },
      postgres: health && {
        ...{ latency, used: health.connections, most: Number(health.settings.max_connections) },
        readOnly: health.inRecovery || health.settings.default_transaction_read_only === 'on',
      },
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

const quietly = <T>(work: Promise<T>): Promise<T | undefined> => work.catch(() => undefined);

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

/** Processes that were heard a moment ago. */
export const living = (processes: SeenProcess[], ...names: SeenProcess['name'][]) =>
  processes.filter(({ name, silentSeconds }) => names.includes(name) && silentSeconds <= SILENT_SECONDS);

/** How fast Redis answers, what it holds, and how it is; undefined: it does not answer, or there is none. */
async function pingRedis({ redis, layout }: QueueConnection): Promise<FleetState['redis']> {
  if (redis?.status !== 'ready') return undefined;
  const begun = performance.now();
  const health = await quietly(readHealth(redis, layout.shards));
  return health && { latency: performance.now() - begun, ...health };
}
