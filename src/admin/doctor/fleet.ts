import type { Problem } from '../../checks/check.ts';
import { createReader } from '../../checks/read.ts';
import type { Readings } from '../../checks/readings.ts';
import { findProblems } from '../../checks/registry.ts';
import type { Config } from '../../platform/config.ts';
import type { QueueConnection } from '../../queue/connection.ts';
import { readTotals } from '../../store/counters.ts';
import type { Pool } from '../../store/database.ts';
import { countRefused } from '../../store/refused-objects.ts';

/** State of all processes and stores at one moment. */
export interface FleetNow extends Readings {
  problems: Problem[];
  /** Objects that have taken effect since the installation was created. */
  objects: number;
  /** Number of dead letters in state `waiting`. */
  waitingLetters: number;
  /** Objects that web refused in the current and the previous clock hour, and the length of this period in seconds. */
  refused: { objects: number; seconds: number };
}

/** Timeout of a store in milliseconds, with time for the new connections of a command. */
const PATIENCE_MS = 4000;

interface FleetSource {
  pool: Pool;
  /** Connection to the queue; undefined while the queue cannot be reached. */
  connection: QueueConnection | undefined;
  /** Reason why the queue cannot be reached. */
  whyNoQueue?: string | undefined;
  config: Pick<Config, 'QUEUE' | 'LANES' | 'SHARDS'>;
}

/** Creates a reader of the fleet's state for a command. */
export function createFleetReader({ pool, connection, whyNoQueue, config }: FleetSource) {
  const settings = { lanes: config.LANES, shards: config.SHARDS ?? 1 };
  const queue = { kind: config.QUEUE, connection, failure: whyNoQueue, settings };
  return createReader({ pool, queue }, { patience: PATIENCE_MS, readsOnce: true });
}

/** Returns a function that reads the fleet's state and problems; it rejects if Postgres is unavailable. */
export function watchFleet(source: FleetSource): () => Promise<FleetNow> {
  const reader = createFleetReader(source);
  return async () => {
    const [readings, totals, refused] = await Promise.all([
      reader.read(),
      readTotals(source.pool),
      countRefused(source.pool),
    ]);
    return {
      ...readings,
      problems: findProblems(readings, 'fleet'),
      ...{ objects: totals.objects, waitingLetters: totals.waitingDeadLetters, refused },
    };
  };
}
