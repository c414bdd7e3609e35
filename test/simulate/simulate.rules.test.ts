import { expect, test } from 'vitest';
import { mutationsOf } from '../../tools/simulate/mutations.ts';
import { planOf } from '../../tools/simulate/plan.ts';
import { bundleProgram } from '../../tools/simulate/program.ts';
import { PathWatcher, rarePathsOf } from '../../tools/simulate/rare-paths.ts';
import { shrink } from '../../tools/simulate/shrink.ts';
import { simulate } from '../../tools/simulate/simulation.ts';
import { lengthOf } from '../setup/length.ts';

/** Seeds that find the mutations, by name of the mutation. `npm run simulate -- --mutations` searches for such seeds. */
const FOUND_BY: Readonly<Record<string, number>> = {
  'overtakes-own-workspace': 1,
  'batch-in-another-order': 1,
  'share-taken-from-the-middle': 1,
  'completed-with-objects-left': 1,
  'cut-envelope-from-the-start': 1,
  'deep-snapshot-without-ends': 13,
  'fence-before-the-last-lane': 5,
  'fence-passed-by-its-workspace': 5,
  'arrival-before-earlier-objects': 5,
  'claims-what-is-applied': 1,
  'one-lane-in-two-transactions': 1,
  'finished-before-applied': 1,
  'add-reported-too-early': 2,
};

const mutations = mutationsOf('memory');
const mutationOf = (name: string) => mutations.filter((mutation) => mutation.name === name);

test('a seed gives the same trace and the same effects each time', async () => {
  const program = await bundleProgram();
  const run = () => simulate(program, planOf(4), { keepsTrace: true });
  const [first, second] = [await run(), await run()];
  expect(first.trace.length).toBeGreaterThan(100);
  expect(second.digest).toBe(first.digest);
  expect(second.objects).toBe(first.objects);
  const other = await simulate(program, planOf(5), { keepsTrace: true });
  expect(other.digest).not.toBe(first.digest);
});

test('every guarantee holds for each seed', async () => {
  const program = await bundleProgram();
  const watcher = new PathWatcher('memory');
  const failed: string[] = [];
  for (let seed = 1; seed <= lengthOf({ short: 12, long: 2000 }); seed++) {
    const { violations } = await simulate(program, planOf(seed), { listen: (line) => watcher.observe(line) });
    if (violations[0]) failed.push(`seed ${seed}: ${violations[0].text}`);
  }
  expect(failed).toEqual([]);
  expect(watcher.taken.size).toBeGreaterThan(rarePathsOf('memory').length / 2);
}, 1_800_000);

test.each(Object.entries(FOUND_BY))('a seed finds the fault of the mutation %s', async (name, seed) => {
  const program = await bundleProgram(mutationOf(name));
  const { violations } = await simulate(program, planOf(seed));
  expect(violations).not.toEqual([]);
});

test('the tests have a seed for each mutation', () => {
  expect(Object.keys(FOUND_BY).sort()).toEqual(mutations.map(({ name }) => name).sort());
});

test('a failing seed is shrunk to fewer requests that fail in the same way', async () => {
  const program = await bundleProgram(mutationOf('claims-what-is-applied'));
  const plan = planOf(FOUND_BY['claims-what-is-applied']!);
  const smallest = await shrink(program, plan, { attempts: 40, print: () => {} });
  expect(smallest.requests.length + smallest.faults.length).toBeLessThan(
    (plan.requests.length + plan.faults.length) / 2,
  );
  const [violation] = (await simulate(program, smallest)).violations;
  expect(violation?.guarantee).toBe('I2 no object is applied twice');
}, 60_000);
