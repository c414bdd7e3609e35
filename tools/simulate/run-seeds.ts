import { Worker } from 'node:worker_threads';
import type { StoreKind } from './program.ts';
import type { SeedDone } from './seeds-thread.ts';

export interface RunSeedsOptions {
  from: number;
  seeds: number;
  threads: number;
  store: StoreKind;
  mutation?: string | undefined;
  stopsAtFailure?: boolean;
  /** Real milliseconds after which no further seed begins. */
  milliseconds?: number;
  print(line: string): void;
}

export interface SeedsResult {
  seeds: number;
  /** Simulated milliseconds. */
  simulated: number;
  /** Real seconds. */
  seconds: number;
  events: number;
  objects: number;
  failures: { seed: number; violation: string }[];
  /** Names of the rare paths that were taken. */
  paths: Set<string>;
}

/** Runs seeds in several threads. */
export async function runSeeds(options: RunSeedsOptions): Promise<SeedsResult> {
  const {
    from,
    seeds,
    threads,
    store,
    mutation,
    stopsAtFailure = false,
    milliseconds = Number.POSITIVE_INFINITY,
  } = options;
  const started = performance.now();
  const result: SeedsResult = {
    ...{ seeds: 0, simulated: 0, seconds: 0, events: 0, objects: 0 },
    ...{ failures: [], paths: new Set() },
  };
  let next = from;
  const mayContinue = () =>
    next < from + seeds &&
    performance.now() - started < milliseconds &&
    !(stopsAtFailure && result.failures.length > 0);

  function note({ seed, violation, simulated, events, objects, paths }: SeedDone): void {
    result.seeds++;
    result.simulated += simulated;
    result.events += events;
    result.objects += objects;
    for (const path of paths) result.paths.add(path);
    if (violation === undefined) return;
    result.failures.push({ seed, violation });
    const form = store === 'postgres' ? '--postgres ' : '';
    options.print(`seed ${seed} failed. Run it again: npm run simulate -- ${form}--seed ${seed}`);
    options.print(`  ${violation}`);
  }

  function runThread(): Promise<void> {
    return new Promise((resolve, reject) => {
      const worker = new Worker(new URL('./seeds-thread.js', import.meta.url), {
        workerData: { mutation, store },
        resourceLimits: { maxYoungGenerationSizeMb: 64 },
      });
      worker.on('message', (done: SeedDone | 'ready') => {
        if (done !== 'ready') note(done);
        if (mayContinue()) worker.postMessage(next++);
        else worker.postMessage('stop');
      });
      worker.on('exit', () => resolve());
      worker.on('error', reject);
    });
  }

  await Promise.all(Array.from({ length: Math.max(1, Math.min(threads, seeds)) }, runThread));
  result.seconds = (performance.now() - started) / 1000;
  result.failures.sort((one, other) => one.seed - other.seed);
  return result;
}
