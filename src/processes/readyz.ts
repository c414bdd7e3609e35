import type { Problem } from '../checks/check.ts';
import type { Dependency, OwnWork, Readings } from '../checks/readings.ts';
import { findProblems, openProblems, printedProblem } from '../checks/registry.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { QueueLoss } from '../store/installation.ts';
import type { Dependencies } from './dependencies.ts';
import type { Heartbeat } from './heartbeat.ts';

/** State of the stores of a process, for its /readyz. */
export interface ProcessHealth {
  /** The store that holds the queue. */
  queue: QueueConnection['kind'];
  dependencies: Pick<Dependencies, 'lacking' | 'isReadOnly'>;
  /** Why Postgres refuses the writes of the process; undefined while it accepts them. */
  rejectsWrites: Heartbeat['rejectsWrites'];
  /** The loss of the queue that no operator has confirmed. Later objects are safe, so the process stays ready. */
  loss(): QueueLoss | undefined;
  /** Problems of the installation, if the process watches them. They are listed, but the process stays ready. */
  problems?(): readonly Problem[];
}

/**
 * Returns the problems for the /readyz of a process: the problems that the process detects itself,
 * and the problems of the installation. Returns an empty object without problems.
 */
export function readyzProblems(
  { queue, dependencies, rejectsWrites, loss, problems }: ProcessHealth,
  missing: readonly Dependency[],
  own: { [Name in keyof OwnWork]: OwnWork[Name] | undefined },
): { problems?: ReturnType<typeof printedProblem>[] } {
  const at = new Date(Date.now());
  const lacking = dependencies.lacking();
  const readings: Readings = {
    ...{
      at,
      queue,
      loss: loss(),
      rejectsWrites: rejectsWrites(),
      own: { ...own, isReadOnly: dependencies.isReadOnly() } as OwnWork,
    },
    lacking: missing.map((name) => ({ name, since: lacking.find((one) => one.name === name)?.since ?? at })),
  };
  const found = openProblems(findProblems(readings, 'process'), problems?.() ?? []).map(printedProblem);
  return found.length > 0 ? { problems: found } : {};
}
