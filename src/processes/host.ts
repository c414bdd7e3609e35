import { type Config, readConfig } from '../platform/config.ts';
import { runProcess, type Service, type StopOptions, stopOnSignal } from '../platform/lifecycle.ts';
import type { Log } from '../platform/log.ts';
import type { Json } from '../profile/json.ts';
import type { QueueConnection } from '../queue/connection.ts';
import type { Database } from '../store/database.ts';

/** A definition in a seed. */
export type SeedDefinition = Record<string, Json> & { name: string; id?: string };

/**
 * Functions that create a definition of a seed in the first workspace. They return the id, and throw an error with the
 * broken rule.
 */
export type SeedDefinitions = Record<
  'subscriptionGroup' | 'segment' | 'integration',
  (definition: SeedDefinition) => Promise<string>
>;

/** The program that runs a main: a process with one main, or a program with several mains. */
export interface Host {
  config: Config;
  /** Stores that all mains of the program share, and that the program closes. If absent, each main opens its own. */
  stores?: { database: Database; connection: QueueConnection };
  /** File descriptor for log lines. Default: standard output. */
  logTo?: 1 | 2;
  /**
   * Settings of `penstock dev`: web serves the control endpoints below /_dev, and answers when accepted objects have
   * taken effect. Absent in all deployments.
   */
  control?: {
    /** Registers a listener that clears a cache of rows. */
    onForget(listener: () => void): void;
    /** Clears all registered caches. */
    forget(): void;
    /** Called for each request. */
    noteActivity(): void;
    /** Starts the mains that have not been started yet. Resolves when all run. */
    startAll(): Promise<void>;
    /** Key of the first workspace. */
    apiKey: string;
    /** Creates the definitions of seeds that the API cannot create. */
    definitions(): Promise<SeedDefinitions>;
  };
  /**
   * Stops the services of a main, in reverse order, when the program ends.
   * @param services the services. A main that is still starting adds further ones
   */
  stopAtEnd(services: Service[], log: Log, options: StopOptions): void;
}

/** The program of a process: starts its parts, and resolves when they run. */
type Main = (host: Host) => Promise<void>;

/** Mains of the files that were loaded without running them. */
const collected = new Map<string, Main>();

/** Number of loads in progress, which may overlap. */
let loading = 0;

/** Runs a main in this process, with settings from the environment, until a signal arrives. */
export function runMain(name: string, main: Main): void {
  if (loading > 0) collected.set(name, main);
  else runProcess(name, async () => main({ config: readConfig(), stopAtEnd: stopOnSignal }));
}

/**
 * Loads files that call `runMain`, without running their mains.
 * @returns the mains by name
 */
export async function collectMains(load: () => Promise<unknown>): Promise<ReadonlyMap<string, Main>> {
  loading++;
  try {
    await load();
    return collected;
  } finally {
    loading--;
  }
}
