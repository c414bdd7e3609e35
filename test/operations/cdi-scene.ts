import { v7 as uuidv7 } from 'uuid';
import { expect } from 'vitest';
import { type Backend, startFleet } from '../guarantees/fleet.ts';
import { type ApiAnswer, send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { createIntegration, type TestIntegration } from '../setup/integrations.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';

/** Starts a web process, and creates integrations and runs to list. */
export async function createScene(backend: Backend) {
  const fleet = await startFleet(backend, { edges: 1, workers: 0 });
  let made = 0;

  return {
    fleet,
    stop: fleet.stop,

    /** Creates a workspace, by default without limits. */
    async shop({ limited = false } = {}): Promise<TestWorkspace> {
      const workspace = await createWorkspace(fleet.pool, `shop-${++made}`);
      if (!limited) await liftLimits(fleet.pool, workspace.id);
      return workspace;
    },

    send: ({ key }: TestWorkspace, path: string, method = 'GET') =>
      send(fleet.edges[0]!.port, { method, path, key }),

    create: ({ id }: TestWorkspace, change?: TestIntegration) => createIntegration(fleet.pool, id, change),

    /**
     * Adds ended runs, one after the other; the number of rows of a run is its position, which identifies it.
     */
    async addRuns(integration: string, from: number, to: number): Promise<void> {
      for (let position = from; position <= to; position++) {
        await fleet.pool.query(
          `insert into sync_jobs (id, integration_id, asked_by, status, finished_at, rows_synced)
           values ($1, $2, 'schedule', 'success', now(), $3)`,
          [uuidv7(), integration, position],
        );
      }
    },
  };
}

export type Scene = Awaited<ReturnType<typeof createScene>>;

export const jobsOf = (integration: string) => `/cdi/integrations/${integration}/job_sync_status`;

const LINK = '</cdi/[^<>? ]+\\?cursor=[A-Za-z0-9]+={0,2}>';
const HEADER = new RegExp(
  `^(${LINK}; rel="prev"|${LINK}; rel="next"|${LINK}; rel="prev",${LINK}; rel="next")$`,
);

/** Returns the addresses of a Link header, which must have the form that clients of the protocol expect. */
export function linksOf({ headers }: ApiAnswer): { prev?: string; next?: string } {
  const header = headers.get('link');
  if (header === null) return {};
  expect(header).toMatch(HEADER);
  return Object.fromEntries(
    [...header.matchAll(/<([^>]*)>; rel="(prev|next)"/g)].map(([, url, rel]) => [rel, url]),
  );
}
