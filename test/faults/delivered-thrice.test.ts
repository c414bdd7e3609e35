import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Delivery } from '../../workers/batch/open.ts';
import { merge } from '../identity/objects.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { createStore, deliver, event, point } from '../workers/batch.ts';

const ENVELOPES = 100;
const EVENTS = 1000;
const USERS = 20;

let store: Awaited<ReturnType<typeof createStore>>;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.pool.end());

/**
 * Returns an envelope with events and increments of some users, followed by a merge of one user into the
 * next.
 */
function envelope(number: number): Delivery {
  const user = (position: number) => `user-${position % USERS}`;
  const objects = Array.from({ length: EVENTS }, (_, index) => event(user(index)));
  const points = Array.from({ length: USERS }, (_, at) => point(`pointed-${at}`));
  return deliver(store.workspace, [...objects, ...points, merge(user(number), user(number + 1))]);
}

test('G2: 100,000 events are counted exactly although three workers receive each envelope', {
  timeout: 300_000,
}, async () => {
  const { pool } = store;
  for (let number = 0; number < ENVELOPES; number++) {
    const delivery = envelope(number);
    const ended = await Promise.all([1, 2, 3].map(() => applyBatch(pool, [delivery])));
    expect(ended.map(({ kind }) => kind).sort()).toEqual(['applied', 'skipped', 'skipped']);
  }
  const { rows } = await pool.query(
    `select
        (select count(*)::integer from events) as events,
        (select sum(count)::integer from event_summaries) as counted,
        (select sum((custom_attributes -> 'points')::integer)::integer from profiles) as points,
        (select count(*)::integer from merged_profiles) as merges`,
  );
  expect(rows[0]).toEqual({
    events: ENVELOPES * EVENTS,
    counted: ENVELOPES * EVENTS,
    points: ENVELOPES * USERS,
    merges: ENVELOPES,
  });
});
