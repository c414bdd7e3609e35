import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';
import { isLong } from './test/setup/length.ts';
import { keepTemporaryInMemory } from './test/setup/memory-folder.ts';
import { Order } from './test/setup/order.ts';
import { SlowestFiles } from './test/setup/slowest-files.ts';

/**
 * Three tiers of tests; the end of a file's name says in which it is.
 *
 * | name | tier | what it may start |
 * |---|---|---|
 * | `*.rules.test.ts` | rules | nothing: no server, no process |
 * | `*.test.ts` | stores | databases on the run's Postgres, a Redis; the code under test runs in the test's process |
 * | `*.processes.test.ts` | processes | the compiled processes as well, and servers that it may kill |
 *
 * `test/tiers.rules.test.ts` holds each file to its tier. Stores and processes are one project of vitest, so that
 * files of either follow each other in the same few processes: see test/setup/order.ts.
 */
const RULES = 'test/**/*.rules.test.ts';

/** Of the long form alone: what they ask is asked in the short one too, but not of everybody, everywhere, at every length. */
const LONG = isLong ? [] : ['test/**/*.long.*'];

/** Of the stores: they measure the memory of their own process, in which nobody may have been before. */
const MEASURED = 'test/integrations/hostile-*.test.ts';

/**
 * They measure for how long a process keeps others waiting, what it holds until its turn, or how soon another takes over
 * from it: nothing else may run meanwhile.
 */
const ALONE = [
  'test/g8/*.test.ts',
  'test/fuzz/*.test.ts',
  'test/security/held-*.test.ts',
  'test/workers/shared-lanes.*.test.ts',
];

keepTemporaryInMemory();

type ProjectTests = TestProjectInlineConfiguration['test'];

const onServers = {
  globalSetup: ['test/setup/global.ts'],
  setupFiles: ['test/setup/matchers.ts', 'test/setup/end-left-behind.ts'],
  pool: 'forks',
  // One process for many files: what they import is loaded once. test/setup/as-found.ts holds each to leave no trace.
  isolate: false,
  // Of two cores, on which Postgres, Redis and the processes under test run as well; much of a test is waiting.
  maxWorkers: 4,
  sequence: { groupOrder: 1 },
  testTimeout: 120_000,
  hookTimeout: 300_000,
} satisfies ProjectTests;

export default defineConfig({
  test: {
    reporters: ['default', new SlowestFiles()],
    sequence: { sequencer: Order },
    projects: [
      {
        test: {
          name: 'rules',
          include: [RULES],
          setupFiles: ['test/setup/matchers.ts'],
          pool: 'threads',
          isolate: false,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
          testTimeout: 30_000,
        },
      },
      {
        test: {
          name: 'servers',
          include: ['test/**/*.test.ts'],
          exclude: [RULES, MEASURED, ...ALONE, ...LONG, '**/node_modules/**'],
          ...onServers,
        },
      },
      { test: { name: 'measured', include: [MEASURED], ...onServers, isolate: true } },
      { test: { name: 'alone', include: ALONE, ...onServers, maxWorkers: 1, sequence: { groupOrder: 2 } } },
    ],
  },
});
