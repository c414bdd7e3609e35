import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Files that take longest, in seconds on two cores: work, or waiting for leases and time-outs. */
const LONG: [file: string, seconds: number][] = [
  ['chaos/stores', 100],
  ['sync/kills', 95],
  ['embedded/postgres', 90],
  ['workers/shared-lane.', 80],
  ['backup/production', 75],
  ['board/browser.', 75],
  ['start.processes', 70],
  ['chaos/clients', 70],
  ['chaos/members', 70],
  ['board/browser-roles', 60],
  ['chaos/surroundings', 60],
  ['backup/other-times', 60],
  ['workers/time-outs', 58],
  ['streams/kafka', 55],
  ['store/plans.', 50],
  ['sync/engine', 50],
  ['start-admin', 45],
  ['edge/docs-pages', 45],
  ['subscription/processes', 45],
  ['contract/', 45],
  ['board/console-roles', 45],
  ['readiness', 45],
  ['queue/redis-settings.p', 25],
  ['chaos/checker', 45],
  ['admin/command-line', 45],
  ['guarantees/fences', 40],
  ['embedded/keep-postgres', 40],
  ['queue/lane-count', 40],
  ['backup/embedded', 40],
  ['faults/idempotency-crashes', 35],
  ['faults/races', 35],
  ['guarantees/silent-workers', 35],
  ['identity-model/identity-model', 35],
];

/** Seconds that a file is expected to take; 0: few. */
function expected({ moduleId }: TestSpecification): number {
  return LONG.find(([file]) => moduleId.includes(`/test/${file}`))?.[1] ?? 0;
}

const startsProcesses = ({ moduleId }: TestSpecification) => moduleId.endsWith('.processes.test.ts');

/** Part of a run after which no long file is started, because at the end it would delay the whole run. */
const BEGUN = 0.75;

/**
 * Sequencer that alternates files that start processes, which keep the cores busy, and files that mostly
 * wait. Long files
 * are distributed evenly, the longest first, because two at the same moment would slow each other down.
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

/** Gives each file a position between 0, the start of a run, and this part of it. */
function spread(files: TestSpecification[], part: number) {
  return files.map((file, position) => ({ file, at: (part * position) / files.length }));
}
