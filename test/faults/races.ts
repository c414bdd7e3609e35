import { setTimeout as sleep } from 'node:timers/promises';
import { createRandom, pick } from '../../tools/load/random.ts';
import { createClient } from '../guarantees/keep-alive-client.ts';
import type { Fleet } from '../setup/fleet.ts';
import { lengthOf } from '../setup/length.ts';

const USERS = 20;
const CLIENTS = 12;
/** Minimum number of elements, so that some race on a busy machine too. */
const MIN_ELEMENTS = lengthOf({ short: 800, long: 2000 });
/**
 * Maximum number of elements that wait to be applied, so that racing requests are in progress at the same
 * time.
 */
const MAX_WAITING = lengthOf({ short: 500, long: 5000 });

/**
 * Settings of a fleet that rejects no request, because a request answered with 503 may or may not take
 * effect.
 */
export const patience = {
  QUEUE_TIMEOUT_MS: '10000',
  MAX_EVENT_LOOP_LAG_MS: '10000',
  MAX_WAITING_ENVELOPES: '1000000',
};

type Post = (path: string, body: object) => Promise<void>;

/**
 * Runs clients that send random requests, each after the previous one was accepted. @returns the number of
 * elements
 */
async function race(
  fleet: Fleet,
  seconds: number,
  send: (random: () => number, post: Post) => Promise<number>,
): Promise<number> {
  const end = Date.now() + seconds * 1000;
  let elements = 0;
  const before = await countApplied(fleet);
  let applied = 0;
  let over = false;
  const looking = (async () => {
    while (!over) {
      applied = (await countApplied(fleet)) - before;
      await sleep(50);
    }
  })();
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, number) => {
      const random = createRandom(number);
      const connection = createClient(fleet.workspace.key);
      const post: Post = async (path, body) => {
        const answer = await connection.post(pick(random, fleet.edges).port, path, body);
        if (answer.status && answer.status < 300) return;
        throw new Error(`${path} was answered with ${answer.status}: ${answer.body?.message}`);
      };
      while (Date.now() < end || elements < MIN_ELEMENTS) {
        const made = await send(random, post);
        elements += made;
        while (elements - applied > MAX_WAITING) await sleep(50);
      }
      connection.close();
    }),
  );
  over = true;
  await looking;
  return elements;
}

async function countApplied({ pool }: Pick<Fleet, 'pool'>): Promise<number> {
  const { rows } = await pool.query(
    'select coalesce(sum(objects + dead_letters), 0)::integer as applied from lane_totals',
  );
  return rows[0].applied;
}

const time = '2026-01-01T00:00:00Z';

/**
 * Sends merges and identifies that race with track of the same users. @returns sent elements and their sums
 */
export async function raceMerges(fleet: Fleet, seconds: number) {
  const sums = { events: 0, pieces: 0 };
  const elements = await race(fleet, seconds, async (random, post) => {
    const some = () => Math.floor(random() * USERS);
    const external_id = `user-${some()}`;
    const user_alias = { alias_label: 'crm', alias_name: `alias-${some()}` };
    const chance = random();
    if (chance < 0.6) {
      sums.events += 2;
      sums.pieces += 3;
      await post('/users/track', {
        events: [
          { external_id, name: 'seen', time },
          { user_alias, _update_existing_only: false, name: 'seen', time },
        ],
        purchases: [{ external_id, product_id: 'book', currency: 'EUR', price: 1, quantity: 3, time }],
      });
      return 3;
    }
    if (chance < 0.8) {
      const merge_updates = [
        {
          identifier_to_merge: { external_id },
          identifier_to_keep: { external_id: `user-${some()}` },
        },
      ];
      await post('/users/merge', { merge_updates });
    } else await post('/users/identify', { aliases_to_identify: [{ external_id, user_alias }] });
    return 1;
  });
  return { elements, sums };
}

export async function readSums({ pool }: Pick<Fleet, 'pool'>) {
  const { rows } = await pool.query(
    `select
        (select sum(count)::integer from event_summaries join profiles using (workspace_id)
          where profiles.id = event_summaries.profile_id) as counted,
        (select count(*)::integer from events) as events,
        (select sum(count)::integer from purchase_summaries join profiles using (workspace_id)
          where profiles.id = purchase_summaries.profile_id) as pieces,
        (select sum(revenue)::integer from purchase_summaries) as revenue,
        (select count(*)::integer from dead_letters) as "deadLetters"`,
  );
  return rows[0] as Record<'counted' | 'events' | 'pieces' | 'revenue' | 'deadLetters', number>;
}

/**
 * Sends deletes that race with track, merge and identify of the same users. @returns sent elements, and those
 * before a delete
 */
export async function raceDeletes(fleet: Fleet, seconds: number) {
  const sent: { user: string; name: string; accepted: number }[] = [];
  /** Times at which the last delete of a user was sent and accepted. */
  const deleted = new Map<string, { sent: number; accepted: number }>();
  let number = 0;
  const elements = await race(fleet, seconds, async (random, post) => {
    const user = `user-${Math.floor(random() * USERS)}`;
    const chance = random();
    const feeder = `feeder-${number++}`;
    const name = `event-${number}`;
    if (chance < 0.6) {
      await post('/users/track', { events: [{ external_id: user, name, time }] });
      sent.push({ user, name, accepted: Date.now() });
      return 1;
    }
    if (chance < 0.75) {
      // A user that is merged into the user, or identified as it, is part of the user from then on.
      await post('/users/track', { events: [{ external_id: feeder, name, time }] });
      await post('/users/merge', {
        merge_updates: [
          { identifier_to_merge: { external_id: feeder }, identifier_to_keep: { external_id: user } },
        ],
      });
      return 2;
    }
    if (chance < 0.9) {
      const user_alias = { alias_label: feeder, alias_name: feeder };
      await post('/users/track', {
        events: [{ user_alias, _update_existing_only: false, name, time }],
      });
      await post('/users/identify', { aliases_to_identify: [{ external_id: user, user_alias }] });
      sent.push({ user, name, accepted: Date.now() });
      return 2;
    }
    const from = Date.now();
    await post('/users/delete', { external_ids: [user] });
    const before = deleted.get(user);
    if (!before || before.sent < from) deleted.set(user, { sent: from, accepted: Date.now() });
    return 1;
  });
  const before = sent.filter(({ user, accepted }) => accepted < (deleted.get(user)?.sent ?? 0));
  return { elements, before };
}

/** Returns events of deleted users that exist again, and summaries without a user. */
export async function readReturned({ pool }: Pick<Fleet, 'pool'>, before: { name: string }[]) {
  const { rows } = await pool.query<{ name: string }>(
    `select event_summaries.name from event_summaries
       join profiles using (workspace_id) where profiles.id = event_summaries.profile_id`,
  );
  const present = new Set(rows.map(({ name }) => name));
  const orphans = await pool.query(
    `select count(*)::integer as count from event_summaries
      where not exists (select from profiles where profiles.id = event_summaries.profile_id)`,
  );
  return {
    returned: before.filter(({ name }) => present.has(name)),
    orphans: orphans.rows[0].count as number,
  };
}
