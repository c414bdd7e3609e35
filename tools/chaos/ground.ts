import { isDeepStrictEqual } from 'node:util';
import { type Fleet, type FleetOptions, startFleetOn } from '../../test/setup/fleet.ts';
import { createWorkspace } from '../../test/setup/workspace.ts';
import type { OwnPostgres } from './own-postgres.ts';

export interface GroundOptions {
  createDatabase(): Promise<{ url: string }>;
  /** Environment of every process. */
  env?: Record<string, string>;
  /** Starts a Postgres for scenarios that stop it. */
  startPostgres?(): Promise<OwnPostgres>;
}

/** Options of a fleet that a scenario requests. */
export type Wanted = FleetOptions & { url?: string };

/**
 * Stores and a fleet that the short forms of scenarios share, one after the other. Each scenario uses the
 * fleet as the previous one left it, with a workspace of its own. A scenario with findings, or one that
 * spoils the fleet, is the last one that uses it.
 */
export class Ground {
  readonly #options: GroundOptions;
  #postgres: Promise<OwnPostgres> | undefined;
  #fleet: Fleet | undefined;

  constructor(options: GroundOptions) {
    this.#options = options;
  }

  /**
   * Returns the Postgres that a scenario may stop; undefined if there is only the Postgres of the whole run.
   */
  postgres(): Promise<OwnPostgres> | undefined {
    this.#postgres ??= this.#options.startPostgres?.();
    return this.#postgres;
  }

  /**
   * Returns the shared fleet with a new workspace and at least the requested processes; undefined if the
   * scenario needs its own fleet.
   */
  async fleetFor(
    backend: Fleet['backend'],
    { edges = 0, workers = 0, env, url, ...other }: Wanted,
  ): Promise<Fleet | undefined> {
    const postgres = await this.postgres();
    const foreign = Object.values(other).some((value) => value !== undefined);
    if (foreign || !isDeepStrictEqual(env, this.#options.env)) return undefined;
    if (url !== undefined && url !== postgres?.url) return undefined;
    if (this.#fleet) {
      // All scenarios use the same workspace names.
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

  /** Ends the fleet. The next scenario gets a new fleet on other stores. */
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
