import { afterEach, describe, expect, test } from 'vitest';
import { makeUsers } from '../../tools/bench/identity-users.ts';
import { type Backend, eitherBackend, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { liftLimits } from '../setup/examples.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { expectQuickReads, sendQuietly } from './quiet-events.ts';

/** Seconds for which the noisy workspace sends. */
const SECONDS = Number(process.env.G8_SECONDS ?? 4);
const BACKENDS = (process.env.G8_FORM?.split(',') ?? eitherBackend) as Backend[];

/** Concurrent requests of the noisy workspace, and identity operations per request: the maximum of the specification. */
const AT_ONCE = 8;
const PER_REQUEST = 50;

/** Users of each kind. A request changes other users than the requests before it, until all have been changed. */
const USERS = 20_000;

let fleet: Fleet | undefined;
afterEach(() => fleet?.stop());

/** Sends merges and identifies in turn. @returns the number of accepted operations */
async function flood({ edges, workspace }: Fleet): Promise<number> {
  const ends = performance.now() + SECONDS * 1000;
  let next = 0;
  let accepted = 0;
  const sendSome = async () => {
    while (performance.now() < ends) {
      const first = next;
      next += PER_REQUEST;
      const users = Array.from({ length: PER_REQUEST }, (_, index) => ((first + index) % USERS) + 1);
      const isMerge = (first / PER_REQUEST) % 2 === 0;
      const json = isMerge
        ? {
            merge_updates: users.map((user) => ({
              identifier_to_merge: { external_id: `from-${user}` },
              identifier_to_keep: { external_id: `into-${user}` },
            })),
          }
        : {
            aliases_to_identify: users.map((user) => ({
              external_id: `into-${user}`,
              user_alias: { alias_label: 'bench', alias_name: `anon-${user}` },
            })),
          };
      const path = isMerge ? '/users/merge' : '/users/identify';
      const { status, body } = await send(edges[0]!.port, { path, key: workspace.key, json });
      if (status === 201 || status === 202) accepted += PER_REQUEST;
      else if (status !== 503)
        throw new Error(`${path} was answered with ${status}: ${JSON.stringify(body)}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, sendSome));
  return accepted;
}

describe.each(BACKENDS)('G8: on %s', (backend) => {
  test('with 4 lanes, quiet events and fences are readable within 1 s during a flood of merges', {
    timeout: 120_000,
  }, async () => {
    fleet = await startFleet(backend, {
      ...{ edges: 1, workers: 1 },
      // Uses the default lock duration. Other tests cover short locks on a busy machine.
      env: { LANES: '4', LOCK_DURATION_MS: '5000', STALLED_INTERVAL_MS: '2000' },
    });
    const { pool, workspace } = fleet;
    await makeUsers(pool, 'from', USERS);
    await makeUsers(pool, 'into', USERS);
    await makeUsers(pool, 'anon', USERS, false);
    const quiet = await createWorkspace(pool, 'quiet');
    for (const { id } of [workspace, quiet]) await liftLimits(pool, id);
    await pool.query('vacuum analyze');
    await sendQuietly(fleet, quiet, async () => true);
    const applied = async () => {
      const { rows } = await pool.query(
        'select coalesce(sum(identity), 0)::integer as count from usage where workspace_id = $1',
        [workspace.id],
      );
      return rows[0].count;
    };
    let accepted: number | undefined;
    const sent = flood(fleet).then((count) => {
      accepted = count;
    });
    const isApplied = async () => accepted !== undefined && (await applied()) >= accepted;
    // An attribute object that sets an email is a fence of the quiet workspace.
    const fenceOf = (external_id: string) => ({
      attributes: [{ external_id, email: `${external_id}@example.com` }],
    });
    const [waits, fenceWaits] = await Promise.all([
      sendQuietly(fleet, quiet, isApplied),
      sendQuietly(fleet, quiet, isApplied, fenceOf),
      sent,
    ]);
    expect(accepted).toBeGreaterThan(PER_REQUEST);
    expectQuickReads(`${backend}, 4 lanes, ${accepted} identity operations, events`, waits);
    expectQuickReads(`${backend}, 4 lanes, ${accepted} identity operations, fences`, fenceWaits);
  });
});
