import { createRandom, pick } from '../../tools/load/random.ts';
import { createClient } from '../guarantees/keep-alive-client.ts';
import type { Fleet } from '../setup/fleet.ts';

const USERS = 100;
const OF_ONE_REQUEST = 50;
const CLIENTS = 8;

export interface Crossed {
  merges: number;
  events: number;
  /** Answers other than 201 and 202. */
  refused: number;
}

/**
 * Sends opposite merges, chains and cycles over 100 users by several clients, each request after events of as
 * many users.
 */
export async function sendCrossingMerges(
  fleet: Fleet,
  { merges, seed = 12 }: { merges: number; seed?: number },
): Promise<Crossed> {
  const random = createRandom(seed);
  const user = () => `user-${Math.floor(random() * USERS)}`;
  const sent: Crossed = { merges: 0, events: 0, refused: 0 };
  const client = async () => {
    const connection = createClient(fleet.workspace.key);
    while (sent.merges < merges) {
      // Events recreate merged users, so that there is always a user to merge.
      const back = Array.from({ length: OF_ONE_REQUEST }, () => ({
        external_id: user(),
        name: 'seen',
        time: '2026-01-01T00:00:00Z',
      }));
      sent.events += back.length;
      sent.merges += OF_ONE_REQUEST;
      const { port } = pick(random, fleet.edges);
      const tracked = await connection.post(port, '/users/track', { events: back });
      const merged = await connection.post(port, '/users/merge', { merge_updates: crossing(random, user) });
      if (tracked.status !== 201 || merged.status !== 202) sent.refused++;
    }
    connection.close();
  };
  await Promise.all(Array.from({ length: CLIENTS }, client));
  return sent;
}

/** Reads the events of merged users, and the users that have them. */
export async function readCrossed({ pool }: Pick<Fleet, 'pool'>) {
  const { rows } = await pool.query<{
    counted: number;
    living: number;
    summaries: number;
    events: number;
    deadLetters: number;
  }>(
    `select
      (select sum(count)::integer from event_summaries) as counted,
      (select count(*)::integer from event_summaries
        join profiles on profiles.workspace_id = event_summaries.workspace_id
          and profiles.id = event_summaries.profile_id) as living,
      (select count(*)::integer from event_summaries) as summaries,
      (select count(*)::integer from events) as events,
      (select count(*)::integer from dead_letters) as "deadLetters"`,
  );
  return rows[0]!;
}

/** Returns the log lines of workers that mention a deadlock. */
export function deadlocksOf({ workers }: Pick<Fleet, 'workers'>): unknown[] {
  return workers.flatMap(({ log }) => log).filter(({ err }) => /deadlock/.test(JSON.stringify(err ?? '')));
}

/** Returns A→B and B→A, a chain, a cycle, and merges of random users. */
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
