import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take longest, in seconds on two cores: begun at the end they would keep everybody waiting. */
const LONG: [file: string, seconds: number][] = [
  ['chaos/stores', 150],
  ['g8/g8', 130],
  ['security/held-connections', 110],
  ['start.processes', 80],
  ['chaos/clients', 70],
  ['chaos/surroundings', 70],
  ['chaos/members', 60],
  ['sync/kills', 60],
  ['start-admin', 60],
  ['workers/time-outs', 58],
  ['faults/idempotency-crashes', 55],
  ['identity-model/identity-model', 50],
  ['guarantees/fences', 45],
  ['faults/races', 45],
  ['board/accounts', 45],
  ['guarantees/silent-workers', 45],
  ['chaos/checker', 45],
  ['backup/', 40],
  ['embedded/', 40],
  ['board/dead-letters', 40],
];

/** Seconds that a file is expected to take; 0: few. */
function expected({ moduleId }: TestSpecification): number {
  return LONG.find(([file]) => moduleId.includes(`/test/${file}`))?.[1] ?? 0;
}

const startsProcesses = ({ moduleId }: TestSpecification) => moduleId.endsWith('.processes.test.ts');

/**
 * Sequencer: the longest files of a project first, and behind them in turns one that starts processes and one that does
 * not. The former keep the cores busy and the latter wait, mostly.
 */
export class Order extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files);
    const projects = new Map<string, TestSpecification[]>();
    for (const file of sorted)
      projects.set(file.project.name, [...(projects.get(file.project.name) ?? []), file]);
    return [...projects.values()].flatMap(inOrder);
  }
}

function inOrder(files: TestSpecification[]): TestSpecification[] {
  const long = files
    .filter((file) => expected(file) > 0)
    .sort((one, other) => expected(other) - expected(one));
  const rest = files.filter((file) => expected(file) === 0);
  return [
    ...long,
    ...inTurns(
      rest.filter(startsProcesses),
      rest.filter((file) => !startsProcesses(file)),
    ),
  ];
}

/** Both lists are spread over the whole, whatever their lengths. */
function inTurns<T>(some: T[], others: T[]): T[] {
  const placed = [some, others].flatMap((list) =>
    list.map((one, place) => ({ one, at: (place + 0.5) / list.length })),
  );
  return placed.sort((a, b) => a.at - b.at).map(({ one }) => one);
}
