import { afterAll, beforeAll, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { merge } from '../identity/objects.ts';
import { lengthOf } from '../setup/length.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { createStore, deliver, event, openPool, point } from '../workers/batch.ts';
import { startCommitCutter } from '../workers/commit-cutter.ts';

/** An even number. */
const COMMITS = Number(process.env.CUT_COMMITS ?? lengthOf({ short: 100, long: 1000 }));
/**
 * Each commit uses a new connection, which has to plan its statements again; merges have the most statements.
 */
const MERGE_EVERY = 10;

let store: Awaited<ReturnType<typeof createStore>>;
beforeAll(async () => {
  store = await createStore();
});
afterAll(() => store.pool.end());

test(`G2: objects and merges have one effect if ${COMMITS} commits are cut, half after execution`, {
  timeout: 300_000,
}, async () => {
  const { pool, url, workspace } = store;
  const cutter = await startCommitCutter(url);
  const throughProxy = openPool(cutter.url);
  // On a Citus, the place of a workspace is created once in a separate transaction, which must not be cut.
  expect(await applyBatch(throughProxy, [deliver(workspace, [event('keeper')])])).toMatchObject({
    kind: 'applied',
  });
  const ended = { applied: 0, skipped: 0 };
  for (let round = 0; round < COMMITS; round++) {
    const user = `user-${round}`;
    const objects: AcceptedObject[] = [event('keeper'), point('keeper')];
    if (round % MERGE_EVERY < 2) objects.push(event(user), merge(user, 'keeper'));
    const envelope = deliver(workspace, objects);
    cutter.arm(round % 2 === 0 ? 'before' : 'after');
    await expect(applyBatch(throughProxy, [envelope])).rejects.toThrow();
    const { kind } = await applyBatch(throughProxy, [envelope]);
    ended[kind]++;
  }
  expect(cutter.cuts()).toBe(COMMITS);
  expect(ended).toEqual({ applied: COMMITS / 2, skipped: COMMITS / 2 });
  const { rows } = await pool.query(
    `select
        (select count(*)::integer from profiles) as profiles,
        (select custom_attributes from profiles) as custom,
        (select sum(count)::integer from event_summaries) as counted,
        (select count(*)::integer from events) as events,
        (select count(*)::integer from merged_profiles) as merged`,
  );
  const merges = (2 * COMMITS) / MERGE_EVERY;
  expect(rows[0]).toEqual({
    profiles: 1,
    custom: { points: COMMITS },
    counted: COMMITS + merges + 1,
    events: COMMITS + merges + 1,
    merged: merges,
  });
  await throughProxy.end();
});
