import { parentPort, workerData } from 'node:worker_threads';
import { mutations } from './mutations.ts';
import { planFor } from './plan-for.ts';
import { startCluster } from './postgres/cluster.ts';
import { bundleProgram, type StoreKind } from './program.ts';
import { PathWatcher } from './rare-paths.ts';
import { type SimulationOptions, simulate } from './simulation.ts';

/** The result of the simulation of a seed. */
export interface SeedDone {
  seed: number;
  /** The first guarantee that was not kept. */
  violation: string | undefined;
  /** Simulated milliseconds. */
  simulated: number;
  events: number;
  objects: number;
  /** Names of the rare paths that were taken. */
  paths: string[];
}

const { mutation, store } = workerData as { mutation: string | undefined; store: StoreKind };
const chosen = mutations.filter(({ name }) => name === mutation);
const program = await bundleProgram(chosen, store);
const cluster = store === 'postgres' ? await startCluster() : undefined;

async function run(seed: number): Promise<SeedDone> {
  const watcher = new PathWatcher(store);
  const listen: SimulationOptions['listen'] = (line) => watcher.observe(line);
  const outcome = await simulate(program, planFor(store, seed), { listen, cluster });
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

parentPort?.on('message', (seed: number | 'stop') => {
  if (seed === 'stop') void stop();
  else void run(seed).then((done) => parentPort?.postMessage(done));
});

async function stop(): Promise<void> {
  await cluster?.stop();
  parentPort?.close();
}

parentPort?.postMessage('ready');
