import { defineConfig, type TestProjectInlineConfiguration } from 'vitest/config';
import { isLong } from './test/setup/length.ts';
import { keepTemporaryInMemory } from './test/setup/memory-folder.ts';
import { Order } from './test/setup/order.ts';
import { SlowestFiles } from './test/setup/slowest-files.ts';

/**
 * Tests have three tiers, by the end of the file name:
 *
 * | name | tier | may start |
 * |---|---|---|
 * | `*.rules.test.ts` | rules | no server and no process |
 * | `*.test.ts` | stores | databases on the run's Postgres, a Redis; the code under test runs in the test's process |
 * | `*.processes.test.ts` | processes | the compiled processes as well, and servers that it may kill |
 *
 * `test/tiers.rules.test.ts` checks that each file keeps to its tier. Stores and processes form one Vitest project, so
 * that their files run one after the other in the same few processes: see test/setup/order.ts.
 */
const RULES = 'test/**/*.rules.test.ts';

/** Runs only in the long form. The short form covers the same claims with fewer cases. */
const LONG = isLong ? [] : ['test/**/*.long.*'];

/** Store tests that measure the memory of their process, so each needs a new process. */
const MEASURED = 'test/integrations/hostile-*.test.ts';

/**
 * Tests that measure how long a process delays others, how much memory it holds for slow clients, or how soon another
 * process takes over. They run alone.
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
  // Many files share a process, which loads imports once. test/setup/as-found.ts checks that a file leaves no trace.
  isolate: false,
  // Twice the two cores, although Postgres, Redis and the tested processes use them too: tests mostly wait.
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
