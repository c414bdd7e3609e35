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

/** Maximum number of concurrent requests of all workspaces together: the same for one workspace and for a thousand. */
const IN_FLIGHT = 32;

/** Approximate number of objects per user in a request. */
const OBJECTS_PER_USER = 3;

const POLL_MS = 50;

/** Milliseconds in which all accepted objects must be applied, and for which a request may wait for its turn. */
const TIMEOUT_MS = 180_000;

/** Number of workspaces that are checked at a time: the size of the pool of the fleet. */
const CHECKS_AT_ONCE = 4;

/** Creates workspaces in a fleet. Each of them gets its own load and journal. @param objects objects per request */
export async function createTenants(fleet: Fleet, count: number, objects: number) {
  const semaphore = createSemaphore({
    ...{ maxRunning: IN_FLIGHT, maxRunningPerOwner: IN_FLIGHT, maxWaiting: 1e6, maxWaitingPerOwner: 1e6 },
    ...{ patience: TIMEOUT_MS, refusal: (reason) => new Error(reason) },
  });
  const fleets = [fleet];
  for (let number = 2; number <= count; number++)
    fleets.push({ ...fleet, workspace: await createWorkspace(fleet.pool, `tenant-${number}`) });
  for (const { workspace } of fleets) await raiseLimitsOf(fleet.pool, workspace.id);
  await fleet.pool.query('analyze');

  /** Starts the load of every workspace. Each load runs until it is stopped. */
  function send(): Load[] {
    return fleets.map((tenant) =>
      startLoad(tenant, {
        clients: Math.max(1, Math.floor(IN_FLIGHT / count)),
        peoplePerRequest: Math.max(1, Math.round(objects / OBJECTS_PER_USER)),
        maxUnapplied: Number.POSITIVE_INFINITY,
        pass: (request) => semaphore.use(tenant.workspace.id, request),
      }),
    );
  }

  /** Resolves when the queue is empty. @throws {Error} if jobs still wait after TIMEOUT_MS */
  async function drained(): Promise<void> {
    for (const from = Date.now(); ; await sleep(POLL_MS)) {
      const queue = await countQueue(fleet).catch(() => undefined);
      if (queue?.waiting === 0) return;
      if (Date.now() - from > TIMEOUT_MS) throw new Error(`${queue?.waiting} jobs still wait`);
    }
  }

  /** Checks invariants I1 to I5 in each workspace. @param loads the loads that `send` returned */
  async function check(loads: Load[]): Promise<Finding[]> {
    const findings: Finding[] = [];
    const remaining = [...loads.entries()];
    await Promise.all(
      Array.from({ length: CHECKS_AT_ONCE }, async () => {
        for (let next = remaining.pop(); next; next = remaining.pop()) {
          const [index, { journal }] = next;
          const stored = await readPeople(fleet.pool, fleets[index]!.workspace.id, journal);
          findings.push(...checkPeople(journal, stored).findings);
        }
      }),
    );
    return findings;
  }

  return { send, drained, check, processed: () => countProcessed(fleet) };
}
