import { expect } from 'vitest';
import { waitUntil } from '../setup/fixtures.ts';
import { countProcessed, type Fleet } from './fleet.ts';
import { countGood } from './person.ts';
import type { Logged } from './traffic.ts';

/** What stands in the store about one user. */
export interface Effect {
  name: string;
  seq: number;
  log: number[];
  points: number;
}

export interface Effects {
  users: Map<string, Effect>;
  /** How many users of the same name there are, where there is more than one. */
  twins: string[];
  /** How often each tag of an event or a purchase stands there. */
  tags: Map<string, number>;
  /** Rows of each profile and name beside what its summary says, where the two differ. */
  wrongSums: unknown[];
}

/**
 * What the traffic has come to, once everything that was acknowledged is there. All is read as of one moment,
 * at which every envelope has been applied whole or not at all.
 */
export async function settled(fleet: Fleet, log: Logged[], deadline = 20_000): Promise<Effects> {
  const objects = countGood(log.filter(({ status }) => status === 201).flatMap(({ sent }) => sent));
  let effects: Effects | undefined;
  await waitUntil(
    async () => {
      if ((await countProcessed(fleet)) < objects) return false;
      effects = await readEffects(fleet);
      return lost(log, effects).length === 0;
    },
    { what: `${objects} acknowledged objects to be applied`, deadline },
  ).catch(() => {
    // The test that says "none is lost" names those that are.
  });
  return effects ?? readEffects(fleet);
}

async function readEffects({ pool }: Fleet): Promise<Effects> {
  const client = await pool.connect();
  try {
    await client.query('begin isolation level repeatable read read only');
    const users = await client.query<Effect>(
      `select custom_attributes ->> 'name' as name, (custom_attributes -> 'seq')::integer as seq,
              coalesce(custom_attributes -> 'log', '[]') as log,
              coalesce((custom_attributes -> 'points')::integer, 0) as points
         from profiles`,
    );
    const tags = await client.query<{ tag: string; count: number }>(
      `select tag, count(*)::integer as count
         from (select properties ->> 'tag' as tag from events
               union all select properties ->> 'tag' from purchases) as rows
        group by tag`,
    );
    const { rows: wrongSums } = await client.query(wrongSumsStatement);
    await client.query('commit');
    const byName = new Map(users.rows.map((user) => [user.name, user]));
    return {
      users: byName,
      twins: users.rows.filter((user) => byName.get(user.name) !== user).map(({ name }) => name),
      tags: new Map(tags.rows.map(({ tag, count }) => [tag, count])),
      wrongSums,
    };
  } finally {
    client.release();
  }
}

const wrongSumsStatement = `
with events_counted as (
  select profile_id, name, count(*) from events group by profile_id, name
), purchases_counted as (
  select profile_id, product_id, currency, sum(quantity) as count, sum(price * quantity) as revenue
    from purchases group by profile_id, product_id, currency
)
select profile_id, name, events_counted.count::text as rows, event_summaries.count::text as summary
  from events_counted full join event_summaries using (profile_id, name)
 where events_counted.count is distinct from event_summaries.count
union all
select profile_id, product_id, purchases_counted.count || ' for ' || purchases_counted.revenue,
       purchase_summaries.count || ' for ' || purchase_summaries.revenue
  from purchases_counted full join purchase_summaries using (profile_id, product_id, currency)
 where (purchases_counted.count, purchases_counted.revenue)
       is distinct from (purchase_summaries.count, purchase_summaries.revenue)`;

/** Objects that were acknowledged and are not there. */
function lost(log: Logged[], { users, tags }: Effects): string[] {
  const missing: string[] = [];
  const logs = new Map([...users].map(([name, user]) => [name, new Set(user.log)]));
  for (const { status, sent } of log) {
    if (status !== 201) continue;
    for (const object of sent) {
      if (object.kind === 'attributes') {
        if (!logs.get(object.user)?.has(object.seq)) missing.push(`${object.user} ${object.seq}`);
      } else if (object.kind !== 'bad' && !tags.has(object.tag)) missing.push(object.tag);
    }
  }
  return missing;
}

export function expectNoneLost(log: Logged[], effects: Effects): void {
  expect(log.filter(({ status }) => status === 201).length).toBeGreaterThan(0);
  expect(lost(log, effects)).toEqual([]);
}

/** Also those that were not acknowledged stand there once or not at all, and refused ones not at all. */
export function expectNoneTwice(log: Logged[], { users, twins, tags, wrongSums }: Effects): void {
  expect([...tags].filter(([, count]) => count > 1)).toEqual([]);
  expect(twins).toEqual([]);
  expect(wrongSums).toEqual([]);
  for (const { name, points, log: entries } of users.values()) {
    expect({ name, points }).toEqual({ name, points: entries.length });
  }
  const refused = log.flatMap(({ sent }) => sent.filter(({ kind }) => kind === 'bad') as { tag: string }[]);
  expect(refused.filter(({ tag }) => tags.has(tag))).toEqual([]);
}

/** The acknowledged operations of each user took effect in the order in which they were acknowledged. */
export function expectInOrder(log: Logged[], { users }: Effects): void {
  const acknowledged = new Map<string, number[]>();
  for (const { status, sent } of log) {
    if (status !== 201) continue;
    for (const object of sent) {
      if (object.kind !== 'attributes') continue;
      acknowledged.set(object.user, [...(acknowledged.get(object.user) ?? []), object.seq]);
    }
  }
  const out: string[] = [];
  for (const [name, order] of acknowledged) {
    const user = users.get(name)!;
    const known = new Set(order);
    if (user.log.filter((seq) => known.has(seq)).join() !== order.join()) out.push(`${name}: ${user.log}`);
    if (user.seq !== user.log.at(-1)) out.push(`${name}: seq ${user.seq} after ${user.log.at(-1)}`);
  }
  expect(out).toEqual([]);
}
