import type { Problem } from '../../checks/check.ts';
import { createReader } from '../../checks/read.ts';
import type { OwnWork, Readings } from '../../checks/readings.ts';
import { checks, findProblems } from '../../checks/registry.ts';
import type { Config } from '../../platform/config.ts';
import type { QueueConnection } from '../../queue/connection.ts';
import { READS, versionOf } from '../../queue/wire.ts';
import { readTotals } from '../../store/counters.ts';
import type { Pool } from '../../store/database.ts';
import { countRefused } from '../../store/refused-objects.ts';
import { type Finding, ok } from './machine.ts';

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
  return createReader({
    ...{ pool, connection, whyNoQueue, queue: config.QUEUE, patience: PATIENCE_MS, readsOnce: true },
    settings: { lanes: config.LANES, shards: config.SHARDS ?? 1 },
  });
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

/** Converts each group of checks to findings of `doctor`: its problems, or one `ok` finding. */
export function findingsOf(readings: Readings, among = checks): Finding[] {
  const problems = [...findProblems(readings, 'fleet', among), ...findProblems(readings, 'machine', among)];
  const seen = new Set<string>();
  const found = problems
    .filter(({ sentence }) => !seen.has(sentence) && seen.add(sentence))
    .map(
      ({ id, group, severity, sentence, impact, firstStep, link, since }): Finding => ({
        ...{ check: group, level: severity === 'critical' ? 'error' : 'warning', finding: sentence },
        ...{ advice: firstStep, id, impact, link, since: since?.toISOString() ?? null },
      }),
    );
  const normal = among.flatMap(({ group, normal: describeNormal }) => {
    const sentence = found.some(({ check }) => check === group) ? undefined : describeNormal?.(readings);
    return sentence === undefined ? [] : [ok(group, sentence)];
  });
  return [...normal, ...found];
}

/**
 * Checks that workers of this release can read the first job of each lane.
 * @throws if the queue is unavailable
 */
export async function checkEnvelopes(
  { kind, laneStore }: Pick<QueueConnection, 'kind' | 'laneStore'>,
  lanes: number,
): Promise<Finding[]> {
  const unreadable: NonNullable<OwnWork['unreadable']> = [];
  for (let lane = 0; lane < lanes; lane++) {
    const [first] = await laneStore.read(lane, await laneStore.head(lane, 1));
    const version = versionOf(first?.data);
    if (version > READS) unreadable.push({ lane, version, reads: READS });
  }
  return findingsOf(
    { at: new Date(), queue: kind, lacking: [], own: { unreadable } },
    checks.filter(({ id }) => id === 'job-unreadable'),
  );
}
