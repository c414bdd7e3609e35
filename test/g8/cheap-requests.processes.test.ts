import { afterEach, describe, expect, test } from 'vitest';
import { type Backend, eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { FULL } from '../workers/full-users.ts';
import { expectQuickReads, sendQuietly } from './quiet-events.ts';

/** Numbers of requests of the expensive workspace. `G8_CHEAP=60,300,1000` measures each number. */
const COUNTS = (process.env.G8_CHEAP ?? '20').split(',').map(Number);
const LANES = (process.env.G8_LANES ?? '1').split(',');
const BACKENDS = (process.env.G8_FORM?.split(',') ?? eitherBackend) as Backend[];

/** Users per request. Each user has about 230 KB of attributes. */
const USERS = 75;

/** Concurrent requests of the expensive workspace. */
const AT_ONCE = 8;

let fleet: Fleet | undefined;
afterEach(() => fleet?.stop());

/** Inserts users whose attributes have nearly the maximum size. */
async function growUsers({ pool, workspace }: Fleet): Promise<void> {
  await pool.query(
    `insert into profiles (workspace_id, id, external_id, custom_attributes, created_at, updated_at)
     select $1, gen_random_uuid(), 'full-' || n, $2, now(), now() from generate_series(1, $3::integer) as n`,
    [workspace.id, FULL, USERS],
  );
}

/** Sends one request of each workspace: a client cannot cause the work of the first requests again. */
async function warmUp(fleet: Fleet, quiet: { key: string; id: string }): Promise<void> {
  expect(await sendAll(fleet, 1)).toEqual([201]);
  await sendQuietly(fleet, quiet, async () => true);
}

async function sendAll({ edges, workspace }: Fleet, count: number): Promise<number[]> {
  let next = 0;
  const statuses: number[] = [];
  const sendSome = async () => {
    for (let number = next++; number < count; number = next++) {
      const attributes = Array.from({ length: USERS }, (_, user) => ({
        external_id: `full-${user + 1}`,
        seen: number,
      }));
      const json = { attributes };
      const { status } = await send(edges[0]!.port, { path: '/users/track', key: workspace.key, json });
      statuses.push(status);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, sendSome));
  return statuses;
}

describe.each(BACKENDS)('G8: on %s', (backend) => {
  test.each(LANES.flatMap((lanes) => COUNTS.map((count) => [lanes, count] as const)))(
    'with %s lanes, quiet events are readable within 1 s during %i requests for large users',
    { timeout: 3_600_000 },
    async (lanes, count) => {
      fleet = await startFleet(backend, {
        ...{ edges: 1, workers: 1 },
        // Uses the default lock duration. Other tests cover short locks on a busy machine.
        env: { LANES: lanes, LOCK_DURATION_MS: '5000', STALLED_INTERVAL_MS: '2000' },
      });
      const quiet = await createWorkspace(fleet.pool, 'quiet');
      for (const { id } of [fleet.workspace, quiet]) await liftLimits(fleet.pool, id);
      await growUsers(fleet);
      await warmUp(fleet, quiet);
      const { pool, workspace } = fleet;
      const isApplied = async () => {
        const { rows } = await pool.query(
          `select coalesce(sum(attributes), 0)::integer as count from usage where workspace_id = $1`,
          [workspace.id],
        );
        return rows[0].count >= (accepted + 1) * USERS;
      };
      let accepted = Number.POSITIVE_INFINITY;
      const began = performance.now();
      const sent = sendAll(fleet, count).then((statuses) => {
        accepted = statuses.filter((status) => status === 201).length;
        return statuses;
      });
      const waits = await sendQuietly(fleet, quiet, isApplied);
      const seconds = (performance.now() - began) / 1000;
      const requests = `${(await sent).length} requests, ${accepted} accepted, ${seconds.toFixed(1)} s`;
      expectQuickReads(`${backend}, ${lanes} lanes, ${requests}`, waits);
    },
  );
});
