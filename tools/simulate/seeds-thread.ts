import { parentPort, workerData } from 'node:worker_threads';
import { mutations } from './mutations.ts';
import { planOf } from './plan.ts';
import { bundleProgram } from './program.ts';
import { PathWatcher } from './rare-paths.ts';
import { simulate } from './simulation.ts';

/** How the simulation of a seed ended. */
export interface SeedDone {
  seed: number;
  /** The first guarantee that was not kept. */
  violation: string | undefined;
  simulated: number;
  events: number;
  objects: number;
  paths: string[];
}

const { mutation } = workerData as { mutation: string | undefined };
const program = await bundleProgram(mutations.filter(({ name }) => name === mutation));

async function run(seed: number): Promise<SeedDone> {
  const watcher = new PathWatcher();
  const outcome = await simulate(program, planOf(seed), { listen: (line) => watcher.hear(line) });
  const [violation] = outcome.violations;
  return {
    seed,
    violation: violation && `${violation.guarantee}: ${violation.text}`,
    simulated: outcome.simulated,
    events: outcome.events,
    objects: outcome.objects,
    paths: [...watcher.taken],
  };
}

parentPort?.on('message', (seed: number) => {
  void run(seed).then((done) => parentPort?.postMessage(done));
});
parentPort?.postMessage('ready');
