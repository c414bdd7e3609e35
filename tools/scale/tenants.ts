import { setTimeout as sleep } from 'node:timers/promises';
import { createSemaphore } from '../../src/platform/concurrency.ts';
import { countProcessed, type Fleet } from '../../test/setup/fleet.ts';
import { createWorkspace } from '../../test/setup/workspace.ts';
import type { Finding } from '../chaos/check/finding.ts';
import { checkPeople } from '../chaos/check/people.ts';
import { countQueue } from '../chaos/check/queue.ts';
import { readPeople } from '../chaos/check/stored-people.ts';
import { raiseLimitsOf } from '../chaos/load/limits.ts';
import { type Load, startLoad } from '../chaos/load/load.ts';

/** Requests on their way at once, over all workspaces: as many for one as for a thousand. */
const IN_FLIGHT = 32;

/** About three objects are of one person. */
const OBJECTS_OF_ONE = 3;

const LOOK_MS = 50;

/** Milliseconds in which everything accepted is applied. */
const PATIENCE = 180_000;

/** Workspaces that are compared at once: as many as the fleet's own connections. */
const AT_ONCE = 4;

/** So many workspaces of a fleet, each with a load and a journal of its own. */
export async function createTenants(fleet: Fleet, count: number, objects: number) {
  const semaphore = createSemaphore({
    ...{ atOnce: IN_FLIGHT, atOnceOfOne: IN_FLIGHT, mostWaiting: 1e6, mostWaitingOfOne: 1e6 },
    ...{ patience: PATIENCE, refusal: (reason) => new Error(reason) },
  });
  const fleets = [fleet];
  for (let number = 2; number <= count; number++)
    fleets.push({ ...fleet, workspace: await createWorkspace(fleet.pool, `tenant-${number}`) });
  for (const { workspace } of fleets) await raiseLimitsOf(fleet.pool, workspace.id);
  await fleet.pool.query('analyze');

  /** Sends until told to stop. */
  function send(): Load[] {
    return fleets.map((one) =>
      startLoad(one, {
        clients: Math.max(1, Math.floor(IN_FLIGHT / count)),
        peoplePerRequest: Math.max(1, Math.round(objects / OBJECTS_OF_ONE)),
        mostUnapplied: Number.POSITIVE_INFINITY,
        pass: (request) => semaphore.use(one.workspace.id, request),
      }),
    );
  }

  /** Resolves when nothing waits any more. @throws when that takes too long */
  async function drained(): Promise<void> {
    for (const from = Date.now(); ; await sleep(LOOK_MS)) {
      const queue = await countQueue(fleet).catch(() => undefined);
      if (queue?.waiting === 0) return;
      if (Date.now() - from > PATIENCE) throw new Error(`${queue?.waiting} jobs still wait`);
    }
  }

  /** I1 to I5, workspace by workspace. @param loads as `send` has begun them */
  async function check(loads: Load[]): Promise<Finding[]> {
    const findings: Finding[] = [];
    const left = [...loads.entries()];
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        for (let next = left.pop(); next; next = left.pop()) {
          const [place, { journal }] = next;
          const stored = await readPeople(fleet.pool, fleets[place]!.workspace.id, journal);
          findings.push(...checkPeople(journal, stored).findings);
        }
      }),
    );
    return findings;
  }

  return { send, drained, check, processed: () => countProcessed(fleet) };
}
