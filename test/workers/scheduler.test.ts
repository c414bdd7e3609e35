import { setImmediate, setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { Scheduler } from '../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { askEverywhere, isAboutOnePostgres, makeGate, passGate } from '../setup/nodes.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { applyThrough } from './apply-through.ts';
import {
  attributes,
  createStore,
  deliver,
  event,
  lockUsers,
  makeTriggers,
  point,
  readSums,
  silent,
  waitForLocks,
  waitingSince,
} from './batch.ts';

let pool: pg.Pool;
beforeAll(async () => {
  ({ pool } = await createStore());
});
afterAll(() => pool.end());

/** Starts a scheduler whose first envelope, in lane 0, waits for a lock in a transaction until `release`. */
async function startBehindLock(more: AcceptedObject[] = []) {
  const workspace = await createWorkspace(pool, crypto.randomUUID());
  const metrics = createWorkerMetrics();
  const scheduler = new Scheduler(pool, { metrics, log: silent });
  await applyThrough(scheduler, deliver(workspace, [point('ann')]));
  const release = await lockUsers(pool, 'workspace_id = $1', [workspace.id]);
  const first = applyThrough(scheduler, deliver(workspace, [point('ann'), ...more]));
  return {
    workspace,
    scheduler,
    first,
    transactions: async () => (await metrics.batches.get()).values.reduce((sum, { value }) => sum + value, 0),
    release,
  };
}

const visits = (count: number) => Array.from({ length: count }, (_, index) => event(`visitor-${index}`));

test('a large envelope of another lane takes effect while a transaction waits for a lock', async () => {
  const { workspace, scheduler, first, release } = await startBehindLock();
  await applyThrough(scheduler, deliver(workspace, visits(500), 1));
  expect(await readSums(pool, workspace)).toMatchObject({ events: 500, points: 1 });
  await release();
  await first;
  expect(await readSums(pool, workspace)).toMatchObject({ events: 500, points: 2 });
});

test('a process runs two transactions at once, and a third lane waits for one to end', async () => {
  waitForLocks();
  const { workspace, scheduler, first, release } = await startBehindLock();
  const second = applyThrough(scheduler, deliver(workspace, [point('ann')], 1));
  await waitUntil(async () => (await waitingForLocks()) === 2, { what: 'both to wait' });
  const third = applyThrough(scheduler, deliver(workspace, visits(10), 2));
  await setImmediate();
  expect(await readSums(pool, workspace)).toMatchObject({ events: 0, points: 1 });
  await release();
  await Promise.all([first, second, third]);
  expect(await readSums(pool, workspace)).toMatchObject({ events: 10, points: 3 });
});

async function waitingForLocks(): Promise<number> {
  const waiting = await askEverywhere(
    pool.options.connectionString!,
    `select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()`,
  );
  return waiting.length;
}

describe('G8: while a transaction of another lane waits for a lock', () => {
  const trail = (number: number) => attributes('bob', { change: { trail: { array: { add: [number] } } } });

  test('the objects of another workspace take effect in their order', async () => {
    waitForLocks();
    const { workspace, scheduler, first, release } = await startBehindLock(visits(300));
    const quiet = await createWorkspace(pool, crypto.randomUUID());
    const since = await waitUntil(() => waitingSince(pool), { what: 'the large one to wait' });
    await Promise.all([0, 1, 2].map((number) => applyThrough(scheduler, deliver(quiet, [trail(number)], 1))));
    const { rows } = await pool.query(
      `select custom_attributes -> 'trail' as trail from profiles where workspace_id = $1`,
      [quiet.id],
    );
    expect(rows).toEqual([{ trail: [0, 1, 2] }]);
    // The same transaction still waits: the objects did not take effect merely because it had failed.
    expect(await waitingSince(pool)).toBe(since);
    expect(await readSums(pool, workspace)).toMatchObject({ events: 0, points: 1 });
    await release();
    await first;
    expect(await readSums(pool, workspace)).toMatchObject({ events: 300, points: 2 });
  });

  test('G2: an object that waits for another lock takes effect once when the lock is released', async () => {
    const { scheduler, first, release } = await startBehindLock(visits(300));
    const quiet = await createWorkspace(pool, crypto.randomUUID());
    await applyThrough(scheduler, deliver(quiet, [point('bob')], 1));
    const giveBack = await lockUsers(pool, 'workspace_id = $1', [quiet.id]);
    const one = applyThrough(scheduler, deliver(quiet, [point('bob')], 1));
    // The transaction fails after the lock timeout, and is retried.
    await waitUntil(async () => (await waitingForLocks()) === 2, { what: 'both to wait' });
    await waitUntil(async () => (await waitingForLocks()) === 1, { what: 'it to be given up' });
    await giveBack();
    await release();
    await Promise.all([first, one]);
    expect(await readSums(pool, quiet)).toMatchObject({ points: 2 });
  });
});

test.skipIf(isAboutOnePostgres('a trigger on a node cannot read the users of another workspace'))(
  'G8: a workspace whose transactions conflict does not delay another workspace of its lane',
  async () => {
    const { pool: own, workspace } = await createStore();
    const quiet = await createWorkspace(own, crypto.randomUUID());
    await makeTriggers(own, [
      `create function conflict() returns trigger language plpgsql as $$
    begin
      if not exists (select from profiles where external_id = 'bob') then
        raise exception 'conflict' using errcode = 'serialization_failure';
      end if;
      return new;
    end $$`,
      `create trigger conflict before insert on events
      for each row when (new.name = 'conflicts') execute function conflict()`,
    ]);
    const metrics = createWorkerMetrics();
    const scheduler = new Scheduler(own, { metrics, log: silent });
    await applyThrough(
      scheduler,
      deliver(workspace, [event('ann', 'conflicts')]),
      deliver(quiet, [point('bob')]),
    );
    expect(await readSums(own, workspace)).toMatchObject({ events: 1 });
    expect(await readSums(own, quiet)).toMatchObject({ points: 1 });
    // One attempt together and one alone, instead of ten attempts while the whole lane waits.
    expect((await metrics.retries.get()).values[0]!.value).toBeLessThanOrEqual(2);
    await own.end();
  },
);

test('G3: later envelopes of a lane wait for the running batch, even if it is small and slow', async () => {
  const { url, pool: own, workspace } = await createStore();
  await makeTriggers(own, [
    `create function wait_for_go() returns trigger language plpgsql as $$
    begin
      ${passGate(1)}
      return new;
    end $$`,
    `create trigger wait_for_go before insert on events
      for each row when (new.name = 'slow') execute function wait_for_go()`,
  ]);
  const scheduler = new Scheduler(own, { metrics: createWorkerMetrics(), log: silent });
  /** Blocks all events named `slow` while it is shut. */
  const gate = await makeGate(url, 1);
  const named = async (name: string) =>
    (await own.query('select count(*)::integer as count from events where name = $1', [name])).rows[0].count;

  // A slow transaction first, after which the scheduler chooses small batches.
  await gate.shut();
  const slow = applyThrough(scheduler, deliver(workspace, [event('ann', 'slow')]));
  await waitUntil(gate.isWaitedFor, { what: 'the slow event' });
  await sleep(1100);
  await gate.open();
  await slow;

  await gate.shut();
  const run = applyThrough(
    scheduler,
    deliver(workspace, [event('ann', 'slow')]),
    deliver(workspace, [event('ann', 'behind')]),
  );
  await waitUntil(gate.isWaitedFor, { what: 'the first envelope of the run' });
  await applyThrough(scheduler, deliver(workspace, visits(500), 1));
  expect(await named('behind')).toBe(0);
  await gate.open();
  await run;
  expect(await named('behind')).toBe(1);
  await gate.stop();
  await own.end();
});
