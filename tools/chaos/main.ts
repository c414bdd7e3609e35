/**
 * Breaks Penstock on purpose, on a Redis, a Postgres and processes of its own, and compares the responses to
 * clients with the stored data and with a sequential model.
 *
 *   npm run chaos                            all scenarios, one after the other, on both forms of the queue
 *   npm run chaos -- 1 4 --backend redis     some of them
 *   npm run chaos -- --minutes 30 --seed 7   faults mixed at random over at least 1,000,000 objects
 *
 * Exits with status 1 if a figure is out of range or an invariant is violated.
 */

import { runCommand } from '../../test/setup/run-command.ts';
import { openArena } from './arena.ts';
import { mix } from './mix/index.ts';
import { type ChaosOptions, readOptions } from './options.ts';
import { createProgress } from './progress.ts';
import { describeResult, describeTotals, type ScenarioResult } from './report.ts';
import { runScenario } from './run-scenario.ts';
import type { Scenario } from './scenario.ts';
import { scenarios } from './scenarios/index.ts';

async function main(): Promise<void> {
  const options = readOptions(process.argv);
  let print = (_line: string): void => {};
  const chosen = chooseScenarios(options, (line) => print(line));
  const runs = chosen.flatMap((scenario) =>
    options.backends
      .filter((backend) => scenario.backends.includes(backend))
      .map((backend) => ({ scenario, backend })),
  );
  process.stdout.write(`seed ${options.seed}\n`);
  const arena = await openArena();
  const progress = createProgress(runs.length);
  print = progress.print;
  const results: ScenarioResult[] = [];
  try {
    for (const { scenario, backend } of runs) {
      const { short, seed } = options;
      const result = await runScenario(scenario, { backend, arena, short, seed, say: progress.say });
      results.push(result);
      progress.done(describeResult(result));
    }
  } finally {
    progress.stop();
    await arena.stop();
  }
  process.stdout.write(describeTotals(results));
  if (results.some(({ passed }) => !passed)) process.exitCode = 1;
}

/** Returns the scenarios with the given numbers, or only the long form. */
function chooseScenarios(
  { numbers, minutes, objects }: ChaosOptions,
  print: (line: string) => void,
): Scenario[] {
  if (minutes !== undefined) return [mix({ minutes, objects, numbers, print })];
  const unknown = numbers.filter((wanted) => !scenarios.some(({ number }) => number === wanted));
  if (unknown.length > 0) throw new Error(`there is no scenario ${unknown.join(', ')}`);
  return scenarios.filter(({ number }) => numbers.length === 0 || numbers.includes(number));
}

await runCommand(main);
