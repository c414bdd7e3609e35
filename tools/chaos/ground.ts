import { isDeepStrictEqual } from 'node:util';
import { type Fleet, type FleetOptions, startFleetOn } from '../../test/setup/fleet.ts';
import { createWorkspace } from '../../test/setup/workspace.ts';
import type { OwnPostgres } from './own-postgres.ts';

export interface GroundOptions {
  createDatabase(): Promise<{ url: string }>;
  /** Of every process. */
  env?: Record<string, string>;
  /** For scenarios that stop their Postgres. */
  startPostgres?(): Promise<OwnPostgres>;
}

/** What a scenario asks for beside the numbers of processes. */
export type Wanted = FleetOptions & { url?: string };

/**
 * What the short forms of scenarios share, one after the other: two stores, and a fleet as the last one has left it.
 * Each has a workspace of its own there. Who has found something, or spoils a fleet, is the last one on it.
 */
export class Ground {
  readonly #options: GroundOptions;
  #postgres: Promise<OwnPostgres> | undefined;
  #fleet: Fleet | undefined;

  constructor(options: GroundOptions) {
    this.#options = options;
  }

  /** The Postgres that a scenario may stop; undefined where there is none but the run's own. */
  postgres(): Promise<OwnPostgres> | undefined {
    this.#postgres ??= this.#options.startPostgres?.();
    return this.#postgres;
  }

  /** The fleet with a new workspace and at least so many processes; undefined for who needs one of its own. */
  async fleetFor(
    backend: Fleet['backend'],
    { edges = 0, workers = 0, env, url, ...other }: Wanted,
  ): Promise<Fleet | undefined> {
    const postgres = await this.postgres();
    const foreign = Object.values(other).some((value) => value !== undefined);
    if (foreign || !isDeepStrictEqual(env, this.#options.env)) return undefined;
    if (url !== undefined && url !== postgres?.url) return undefined;
    if (this.#fleet) {
      // Scenarios call theirs by the same names.
      await this.#fleet.pool.query('update workspaces set name = id::text');
      this.#fleet.workspace = await createWorkspace(this.#fleet.pool);
    } else {
      const own = postgres?.url ?? (await this.#options.createDatabase()).url;
      this.#fleet = await startFleetOn(own, backend, { edges: 0, workers: 0, ...(env && { env }) });
    }
    const fleet = this.#fleet;
    const missing = (wanted: number, there: unknown[]) => Array.from({ length: wanted - there.length });
    await Promise.all([
      ...missing(Math.max(edges, fleet.edges.length), fleet.edges).map(() => fleet.startEdge()),
      ...missing(Math.max(workers, fleet.workers.length), fleet.workers).map(() => fleet.startWorker()),
    ]);
    return fleet;
  }

  /** Ends the fleet: the next scenario has another, on other stores. */
  async leave(): Promise<void> {
    const fleet = this.#fleet;
    this.#fleet = undefined;
    await fleet?.stop();
    if (this.#postgres === undefined) return;
    const postgres = this.#postgres;
    this.#postgres = undefined;
    await (await postgres).stop();
  }
}
