/**
 * Runs the code of web's lanes and of the workers in simulated processes, over a simulated queue and database. A seed
 * decides the work, the faults and the order of all events, so a failure is one number.
 *
 *   npm run simulate -- --seeds 1000               1,000 seeds
 *   npm run simulate -- --seed 4711 --trace        one seed; prints what happened in each lane
 *   npm run simulate -- --seed 4711 --shrink       one failing seed; removes requests and faults while it still fails
 *   npm run simulate -- --postgres --seeds 100     tables in a real Postgres, with streams and upkeep
 *   npm run simulate -- --mutations                puts known faults into the code, and searches for seeds that find them
 *
 * Exits with 1 if a guarantee was not kept, or if no seed of a long run took an essential rare path.
 */

import { availableParallelism } from 'node:os';
import { describeLine, describePlan, describeViolations } from './describe.ts';
import { mutations, mutationsOf } from './mutations.ts';
import { readOptions, type SimulateOptions } from './options.ts';
import { planFor } from './plan-for.ts';
import { type Cluster, startCluster } from './postgres/cluster.ts';
import { bundleProgram, type StoreKind } from './program.ts';
import { rarePathsOf } from './rare-paths.ts';
import { runSeeds, type SeedsResult } from './run-seeds.ts';
import { shrink } from './shrink.ts';
import { simulate } from './simulation.ts';

/** Minimum number of seeds with which a run must take every essential rare path. */
const LONG_RUN: Readonly<Record<StoreKind, number>> = { memory: 5000, postgres: 500 };

const print = (text: string) => process.stdout.write(`${text}\n`);

async function main(): Promise<void> {
  const options = readOptions(process.argv);
  const hasPassed =
    options.seed !== undefined
      ? await runOne(options.seed, options)
      : options.mutations
        ? await runMutations(options)
        : await runMany(options);
  if (!hasPassed) process.exitCode = 1;
}

const storeOf = ({ postgres }: SimulateOptions): StoreKind => (postgres ? 'postgres' : 'memory');

async function runOne(seed: number, options: SimulateOptions): Promise<boolean> {
  const cluster = options.postgres ? await startCluster() : undefined;
  try {
    return await runOn(cluster, seed, options);
  } finally {
    await cluster?.stop();
  }
}

async function runOn(cluster: Cluster | undefined, seed: number, options: SimulateOptions): Promise<boolean> {
  const store = storeOf(options);
  const chosen = mutations.filter(({ name }) => name === options.mutation);
  const program = await bundleProgram(chosen, store);
  let plan = planFor(store, seed);
  if (options.shrink) plan = await shrink(program, plan, { attempts: options.attempts, print, cluster });
  const outcome = await simulate(program, plan, { keepsTrace: true, cluster });
  if (options.trace) for (const line of outcome.trace) print(describeLine(line));
  if (options.trace || options.shrink) print(describePlan(plan));
  print(`seed ${seed}: ${outcome.objects} objects, ${outcome.events} events, trace ${outcome.digest}`);
  if (outcome.state) print(`final state ${outcome.state}`);
  print(describeViolations(outcome.violations));
  return outcome.violations.length === 0;
}

async function runMany(options: SimulateOptions): Promise<boolean> {
  const result = await runSeeds({
    ...{ from: options.from, seeds: options.seeds, mutation: options.mutation, print },
    ...{ threads: options.threads ?? availableParallelism(), store: storeOf(options) },
  });
  print(describeRun(result));
  const missing = rarePathsOf(storeOf(options)).filter(({ name }) => !result.paths.has(name));
  for (const { name, isEssential } of missing)
    print(`never taken${isEssential ? ' (essential)' : ''}: ${name}`);
  const isComplete =
    options.seeds < LONG_RUN[storeOf(options)] || missing.every(({ isEssential }) => !isEssential);
  return result.failures.length === 0 && isComplete;
}

function describeRun({ seeds, simulated, seconds, events, objects, failures }: SeedsResult): string {
  const minutes = simulated / 60_000;
  const speed = minutes / (seconds / 60);
  return [
    `${seeds} seeds, ${failures.length} failures: ${failures.map(({ seed }) => seed).join(', ') || 'none'}`,
    `${minutes.toFixed(0)} simulated minutes in ${seconds.toFixed(0)} s: ${speed.toFixed(0)} for each real minute`,
    `${events} events, ${objects} objects`,
  ].join('\n');
}

/** Puts each known fault into the code, and searches for a seed that finds it. @returns whether all faults were found */
async function runMutations(options: SimulateOptions): Promise<boolean> {
  let areAllFound = true;
  for (const { name, fault } of mutationsOf(storeOf(options))) {
    if (options.mutation !== undefined && options.mutation !== name) continue;
    const result = await runSeeds({
      ...{ from: options.from, seeds: Number.MAX_SAFE_INTEGER, mutation: name, print: () => {} },
      ...{ threads: options.threads ?? availableParallelism(), store: storeOf(options) },
      stopsAtFailure: true,
      milliseconds: options.minutes * 60_000,
    });
    const [failure] = result.failures;
    areAllFound &&= failure !== undefined;
    const description = failure
      ? `seed ${failure.seed}, after ${result.seeds} seeds and ${result.seconds.toFixed(1)} s: ${failure.violation}`
      : `not found by ${result.seeds} seeds in ${result.seconds.toFixed(1)} s`;
    print(`${name} (${fault}): ${description}`);
  }
  return areAllFound;
}

await main();
