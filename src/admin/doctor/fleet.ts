import type { Problem } from '../../checks/check.ts';
import { createReader } from '../../checks/read.ts';
import type { Readings } from '../../checks/readings.ts';
import { checks, findProblems } from '../../checks/registry.ts';
import type { Config } from '../../platform/config.ts';
import type { QueueConnection } from '../../queue/connection.ts';
import { laneName } from '../../queue/lanes.ts';
import { READS, versionOf } from '../../queue/wire.ts';
import { readTotals } from '../../store/counters.ts';
import type { Pool } from '../../store/database.ts';
import { countRefused } from '../../store/refused-objects.ts';
import { error, type Finding, ok } from './machine.ts';

/** The fleet at one moment. */
export interface FleetNow extends Readings {
  problems: Problem[];
  /** Objects that took effect since the installation was made. */
  objects: number;
  /** Those that wait for an operator. */
  waitingLetters: number;
  /** Objects that web refused in this hour and the one before, and how many seconds that is. */
  refused: { objects: number; seconds: number };
}

/** Milliseconds in which a store has to answer a command: its connections are new. */
const PATIENCE_MS = 4000;

export interface FleetSource {
  pool: Pool;
  /** Of the queue; undefined while it cannot be reached. */
  connection: QueueConnection | undefined;
  /** Why it cannot be reached. */
  whyNoQueue?: string | undefined;
  config: Pick<Config, 'QUEUE' | 'LANES' | 'SHARDS'>;
}

/** Returns what reads the fleet for a command that looks once, or again and again. */
export function createFleetReader({ pool, connection, whyNoQueue, config }: FleetSource) {
  return createReader({
    ...{ pool, connection, whyNoQueue, queue: config.QUEUE, patience: PATIENCE_MS, readsOnce: true },
    settings: { lanes: config.LANES, shards: config.SHARDS ?? 1 },
  });
}

/** Returns what looks at the fleet. @throws when Postgres does not answer */
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

/** Every group of the registry as a line of doctor: its problems, or that it has none. */
export function findingsOf(readings: Readings): Finding[] {
  const problems = [...findProblems(readings, 'fleet'), ...findProblems(readings, 'machine')];
  const seen = new Set<string>();
  const found = problems
    .filter(({ sentence }) => !seen.has(sentence) && seen.add(sentence))
    .map(
      ({ id, group, severity, sentence, impact, firstStep, link, since }): Finding => ({
        ...{ check: group, level: severity === 'critical' ? 'error' : 'warning', finding: sentence },
        ...{ advice: firstStep, id, impact, link, since: since?.toISOString() ?? null },
      }),
    );
  const normal = checks.flatMap(({ group, normal: say }) => {
    const sentence = found.some(({ check }) => check === group) ? undefined : say?.(readings);
    return sentence === undefined ? [] : [ok(group, sentence)];
  });
  return [...normal, ...found];
}

/**
 * Whether each lane begins with something that workers of this release read.
 * @throws when the queue does not answer
 */
export async function checkEnvelopes({ laneStore }: QueueConnection, lanes: number): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (let lane = 0; lane < lanes; lane++) {
    const [first] = await laneStore.read(lane, await laneStore.head(lane, 1));
    const version = versionOf(first?.data);
    if (version > READS)
      findings.push(
        error(
          'envelopes',
          `${laneName(lane)} waits for a worker of a later release: version ${version} comes next, this one reads ${READS}`,
          'Start workers of the release that wrote it; see docs/upgrade.md.',
        ),
      );
  }
  return findings.length > 0 ? findings : [ok('envelopes', 'workers of this release can read the next jobs')];
}
