import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take longest, in seconds on two cores, most of them of the processor. */
const LONG: [file: string, seconds: number][] = [
  ['chaos/stores', 150],
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
  ['contract/', 45],
  ['backup/', 40],
  ['embedded/', 40],
  ['board/dead-letters', 40],
];

/** Seconds that a file is expected to take; 0: few. */
function expected({ moduleId }: TestSpecification): number {
  return LONG.find(([file]) => moduleId.includes(`/test/${file}`))?.[1] ?? 0;
}

const startsProcesses = ({ moduleId }: TestSpecification) => moduleId.endsWith('.processes.test.ts');

/** Part of a run after which no long file is begun: at the end it would keep everybody waiting. */
const BEGUN = 0.75;

/**
 * Sequencer: files that start processes keep the cores busy, and those that do not wait, mostly; so they come in turns. The
 * long ones are spread over them, the longest first: two at the same moment would leave each other no time.
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
  const short = files.filter((file) => expected(file) === 0);
  return [
    ...spread(long, BEGUN),
    ...spread(short.filter(startsProcesses), 1),
    ...spread(
      short.filter((file) => !startsProcesses(file)),
      1,
    ),
  ]
    .sort((one, other) => one.at - other.at)
    .map(({ file }) => file);
}

/** Each at its place between 0, the begin of a run, and this part of it. */
function spread(files: TestSpecification[], part: number) {
  return files.map((file, place) => ({ file, at: (part * place) / files.length }));
}
