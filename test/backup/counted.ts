import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { expect } from 'vitest';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';

/** Users of a set, each with one attribute and two equal events. */
const USERS = 20;
/** Objects of a set. */
export const OBJECTS = USERS * 3;

const name = (set: string, number: number) => `${set}-${number}`;

/** Sends a set of users in several requests, and expects each request to be accepted. */
export async function sendSet(port: number | string, key: string, set: string): Promise<void> {
  for (let number = 0; number < USERS; number += 5) {
    const users = Array.from({ length: 5 }, (_, index) => name(set, number + index));
    const event = (external_id: string) => ({ external_id, name: 'seen', time: '2026-01-02T03:04:05Z' });
    const { status } = await send(Number(port), {
      path: '/users/track',
      key,
      json: {
        attributes: users.map((external_id) => ({ external_id, points: { inc: 1 }, home_city: set })),
        events: users.flatMap((user) => [event(user), event(user)]),
      },
    });
    expect(status).toBe(201);
  }
}

/** Counts the objects of each set in the store, by their rows: users, points, events, and sums. */
export async function countSets(url: string): Promise<Record<string, unknown>> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query(`
      select split_part(external_id, '-', 1) as set, count(*)::integer as users,
             sum((custom_attributes ->> 'points')::integer)::integer as points,
             sum((select count(*) from events where profile_id = profiles.id))::integer as events,
             sum((select sum(count) from event_summaries where profile_id = profiles.id))::integer as summed
        from profiles group by 1`);
    return Object.fromEntries(rows.map(({ set, ...counts }) => [set, counts]));
  } finally {
    await client.end();
  }
}

/** Counts of a set that took effect once and completely. */
export const once = { users: USERS, points: USERS, events: 2 * USERS, summed: 2 * USERS };

/**
 * Waits until the queue is empty, as the page describes. @returns the number of applied objects, by /metrics
 */
export async function drained(port: number | string): Promise<number> {
  let metrics = '';
  // A worker that has just acquired a lane needs a moment, so the queue must be empty twice.
  let empty = 0;
  await waitUntil(
    async () => {
      metrics = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
      const depths = [...metrics.matchAll(/^penstock_queue_depth\{.*\} (\d+)$/gm)];
      empty = depths.length > 0 && depths.every(([, depth]) => depth === '0') ? empty + 1 : 0;
      if (empty < 2) await sleep(200);
      return empty >= 2;
    },
    { what: 'the queue to run empty' },
  );
  return Number(/^penstock_installation_objects_applied (\d+)$/m.exec(metrics)![1]);
}
