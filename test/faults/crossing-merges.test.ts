import { expect, test } from 'vitest';
import { type Backend, startFleet } from '../guarantees/fleet.ts';
import { createClient } from '../guarantees/keep-alive-client.ts';
import { settled } from '../identity-model/run.ts';
import { createRandom, pick } from '../load/random.ts';
import { raiseLimits } from './limits.ts';

const USERS = 100;
/** `npm run model` asks for 10,000. */
const MERGES = Number(process.env.CROSSING_MERGES ?? 2000);
const OF_ONE_REQUEST = 50;
const CLIENTS = 8;

const fleets: { backend: Backend; lanes: number }[] = [
  { backend: 'redis', lanes: 4 },
  { backend: 'postgres', lanes: 1 },
];

test.each(fleets)(
  `opposite merges, chains and cycles, ${MERGES} over ${USERS} users by many workers: no deadlock surfaces, no event and no sum is lost; queue on $backend, $lanes lanes`,
  { timeout: 300_000 },
  async ({ backend, lanes }) => {
    const fleet = await startFleet(backend, { env: { LANES: String(lanes), LOG_LEVEL: 'info' } });
    await raiseLimits(fleet);
    const random = createRandom(12);
    const user = () => `user-${Math.floor(random() * USERS)}`;
    let merges = 0;
    let events = 0;
    const client = async () => {
      const connection = createClient(fleet.workspace.key);
      while (merges < MERGES) {
        // Whoever was merged away is there again, so that there is always somebody to merge.
        const back = Array.from({ length: OF_ONE_REQUEST }, () => ({
          external_id: user(),
          name: 'seen',
          time: '2026-01-01T00:00:00Z',
        }));
        events += back.length;
        merges += OF_ONE_REQUEST;
        const { port } = pick(random, fleet.edges);
        const tracked = await connection.post(port, '/users/track', { events: back });
        const merged = await connection.post(port, '/users/merge', { merge_updates: crossing(random, user) });
        expect([tracked.status, merged.status]).toEqual([201, 202]);
      }
      connection.close();
    };
    await Promise.all(Array.from({ length: CLIENTS }, client));
    await settled(fleet, events + merges, 120_000);

    const { rows } = await fleet.pool.query(
      `select
        (select sum(count)::integer from event_summaries) as counted,
        (select count(*)::integer from event_summaries
          join profiles on profiles.workspace_id = event_summaries.workspace_id
            and profiles.id = event_summaries.profile_id) as living,
        (select count(*)::integer from event_summaries) as summaries,
        (select count(*)::integer from events) as events,
        (select count(*)::integer from dead_letters) as "deadLetters"`,
    );
    expect(rows[0]).toMatchObject({ counted: events, events, living: rows[0].summaries, deadLetters: 0 });
    const trouble = fleet.workers
      .flatMap(({ log }) => log)
      .filter(({ err }) => /deadlock/.test(JSON.stringify(err ?? '')));
    expect(trouble).toEqual([]);
    expect(await fleet.fallen()).toEqual([]);
    await fleet.stop();
  },
);

/** A→B and B→A, a chain, a cycle, and merges of anybody. */
function crossing(random: () => number, user: () => string): object[] {
  const pairs: [string, string][] = [];
  while (pairs.length < OF_ONE_REQUEST) {
    const [a, b, c] = [user(), user(), user()];
    pairs.push(
      ...pick<[string, string][]>(random, [
        [
          [a, b],
          [b, a],
        ],
        [
          [a, b],
          [b, c],
        ],
        [
          [a, b],
          [b, c],
          [c, a],
        ],
        [[a, b]],
      ]),
    );
  }
  return pairs.slice(0, OF_ONE_REQUEST).map(([from, into]) => ({
    identifier_to_merge: { external_id: from },
    identifier_to_keep: { external_id: into },
  }));
}
