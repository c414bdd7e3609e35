import { afterAll, beforeAll, expect, test } from 'vitest';
import { mutationsOf } from '../../tools/simulate/mutations.ts';
import { postgresPlanOf } from '../../tools/simulate/plan-postgres.ts';
import { type Cluster, startCluster } from '../../tools/simulate/postgres/cluster.ts';
import { bundleProgram } from '../../tools/simulate/program.ts';
import { PathWatcher, rarePathsOf } from '../../tools/simulate/rare-paths.ts';
import { simulate } from '../../tools/simulate/simulation.ts';
import { isLong, lengthOf } from '../setup/length.ts';

/**
 * Seeds that find the mutations, by name of the mutation. `npm run simulate -- --postgres --mutations` searches for such
 * seeds.
 */
const FOUND_BY: Readonly<Record<string, number>> = {
  'cursor-before-delivery': 1,
  'cursor-behind-a-part': 1,
  'delete-without-merged-users': 5,
  'cut-envelope-stays-in-the-ledger': 1,
  'cut-envelope-forgets-its-rest': 1,
};

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster();
});
afterAll(() => cluster.stop());

test('a seed gives the same trace and the same final state on Postgres each time', async () => {
  const program = await bundleProgram([], 'postgres');
  const run = () => simulate(program, postgresPlanOf(11), { keepsTrace: true, cluster });
  const first = await run();
  const other = await simulate(program, postgresPlanOf(6), { keepsTrace: true, cluster });
  const second = await run();
  expect(first.violations).toEqual([]);
  expect(first.trace.length).toBeGreaterThan(100);
  expect([second.digest, second.state]).toEqual([first.digest, first.state]);
  expect(other.state).not.toBe(first.state);
});

test('every guarantee holds for each seed on Postgres', async () => {
  const program = await bundleProgram([], 'postgres');
  const watcher = new PathWatcher('postgres');
  const failed: string[] = [];
  for (let seed = 1; seed <= lengthOf({ short: 5, long: 200 }); seed++) {
    const listen = (line: Parameters<PathWatcher['observe']>[0]) => watcher.observe(line);
    const { violations } = await simulate(program, postgresPlanOf(seed), { listen, cluster });
    if (violations[0]) failed.push(`seed ${seed}: ${violations[0].guarantee}: ${violations[0].text}`);
  }
  expect(failed).toEqual([]);
  expect(watcher.taken.size).toBeGreaterThan(
    rarePathsOf('postgres').length / lengthOf({ short: 4, long: 2 }),
  );
}, 3_600_000);

const result = Object.entries(FOUND_BY);
test.each(isLong ? result : result.slice(0, 2))(
  'a seed finds the fault of the mutation %s on Postgres',
  async (name, seed) => {
    const program = await bundleProgram(
      mutationsOf('postgres').filter((mutation) => mutation.name === name),
      'postgres',
    );
    const { violations } = await simulate(program, postgresPlanOf(seed), { cluster });
    expect(violations).not.toEqual([]);
  },
  600_000,
);

test('the tests have a seed for each mutation that needs Postgres', () => {
  expect(Object.keys(FOUND_BY).sort()).toEqual(
    mutationsOf('postgres')
      .map(({ name }) => name)
      .sort(),
  );
});
