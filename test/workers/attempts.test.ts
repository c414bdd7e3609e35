import type pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { newId } from '../../src/platform/ids.ts';
import { beginAttempts, countAttempts, endAttempts } from '../../src/store/job-attempts.ts';
import { Attempts } from '../../workers/batch/attempts.ts';
import { type Delivery, open } from '../../workers/batch/open.ts';
import { Scheduler } from '../../workers/lane/scheduler.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';
import { waitUntil } from '../setup/wait-until.ts';
import type { TestWorkspace } from '../setup/workspace.ts';
import { applyThrough } from './apply-through.ts';
import { createStore, deliver, event, silent } from './batch.ts';

let pool: pg.Pool;
let workspace: TestWorkspace;
beforeAll(async () => {
  ({ pool, workspace } = await createStore());
});
afterAll(() => pool.end());
beforeEach(() => pool.query('delete from job_attempts'));

const watched = (objects: AcceptedObject[]): Delivery => ({
  ...deliver(workspace, objects),
  isWatched: true,
});

/** Simulates a worker process that died while it applied an envelope, or one of its objects alone. */
async function endedDuring(delivery: Delivery, position?: number): Promise<void> {
  const attempts = new Attempts({ pool, log: silent });
  await attempts.begin([delivery]);
  if (position === undefined) return;
  const { items } = open([delivery]);
  await new Promise<void>((resolve) => {
    void attempts.alone(async (begin) => {
      await begin(items[position]!.object.id);
      resolve();
      return new Promise<never>(() => {});
    });
  });
}

async function applied(...deliveries: Delivery[]) {
  const metrics = createWorkerMetrics();
  await applyThrough(new Scheduler(pool, { metrics, log: silent }), ...deliveries);
  const transactions = await metrics.batches.get();
  return {
    setAside: (await metrics.setAside.get()).values[0]!.value,
    transactions: transactions.values.reduce((sum, { value }) => sum + value, 0),
  };
}

async function outcomesOf({ envelope }: Delivery) {
  const ids = envelope.objects.map(({ id }) => id);
  const runQuery = async (statement: string) => (await pool.query<{ id: string }>(statement, [ids])).rows;
  return {
    events: (await runQuery('select id from events where id = any ($1)')).length,
    deadLetters: await runQuery('select id, reason from dead_letters where id = any ($1)'),
  };
}

const rows = async () => (await pool.query('select from job_attempts')).rowCount;

test('attempts of other processes are counted by id', async () => {
  const [one, two, three] = [newId(), newId(), newId()];
  const [self, other] = [newId(), newId()];
  const work = (ids: string[]) => ({ kind: 'object', ids }) as const;
  expect(await beginAttempts(pool, work([one, two]), other)).toEqual(new Map());
  await beginAttempts(pool, work([one]), newId());
  expect(await beginAttempts(pool, work([one, three]), self)).toEqual(new Map([[one, 2]]));
  const counted = () => countAttempts(pool, work([one, two, three]), self);
  expect(await counted()).toEqual(new Map(Object.entries({ [one]: 2, [two]: 1 })));
  await endAttempts(pool, work([one, two]), { processId: other, whose: 'own' });
  expect(await counted()).toEqual(new Map([[one, 1]]));
  await endAttempts(pool, work([one, three]), { processId: self, whose: 'all' });
  expect(await rows()).toBe(0);
});

test('an object that ended two processes becomes a dead letter, and its neighbours take effect', async () => {
  const delivery = watched([event('ada'), event('ada'), event('bob')]);
  await endedDuring(delivery);
  await endedDuring(delivery, 1);
  await endedDuring(delivery, 1);
  expect(await applied(delivery)).toEqual({ setAside: 1, transactions: 3 });
  expect(await outcomesOf(delivery)).toMatchObject({
    events: 2,
    deadLetters: [
      { id: delivery.envelope.objects[1]!.id, reason: expect.stringMatching(/^ended the process: /) },
    ],
  });
  await waitUntil(async () => (await rows()) === 0, { what: 'no attempt that is left' });
});

test('objects that ended one process take effect, each in its own transaction', async () => {
  const delivery = watched([event('ada'), event('bob')]);
  for (const index of [undefined, undefined, 0, 1]) await endedDuring(delivery, index);
  expect(await applied(delivery)).toEqual({ setAside: 0, transactions: 2 });
  expect(await outcomesOf(delivery)).toEqual({ events: 2, deadLetters: [] });
});

test('a watched envelope that ended no process is applied as a whole', async () => {
  const [delivery, suspect] = [watched([event('ada'), event('bob')]), watched([event('cay'), event('dan')])];
  expect(await applied(delivery)).toEqual({ setAside: 0, transactions: 1 });
  await endedDuring(suspect);
  // One transaction for the other envelope, and one per object of the suspect.
  const other = watched([event('eve'), event('fay')]);
  expect(await applied(suspect, other)).toEqual({ setAside: 0, transactions: 3 });
});

test('attempts at an unwatched envelope are not recorded or read', async () => {
  const delivery = deliver(workspace, [event('ada'), event('bob')]);
  await endedDuring({ ...delivery, isWatched: true });
  expect(await applied(delivery)).toEqual({ setAside: 0, transactions: 1 });
  expect(await rows()).toBe(1);
});

test('an attempt that fails while its process lives is not counted', async () => {
  const delivery = watched([event('ada')]);
  const { items } = open([delivery]);
  for (let life = 0; life < 3; life++) {
    const attempts = new Attempts({ pool, log: silent });
    const failing = attempts.alone(async (begin) => {
      await begin(items[0]!.object.id);
      throw new Error('failed');
    });
    await expect(failing).rejects.toThrow('failed');
  }
  expect(await rows()).toBe(0);
});

test('a process applies suspected objects alone, one at a time', async () => {
  const attempts = new Attempts({ pool, log: silent });
  const events: string[] = [];
  let finish = () => {};
  const first = attempts.alone(async () => {
    events.push('first begins');
    await new Promise<void>((resolve) => {
      finish = resolve;
    });
    events.push('first ends');
  });
  const second = attempts.alone(async () => {
    events.push('second begins');
  });
  await waitUntil(() => events.length > 0, { what: 'the first' });
  finish();
  await Promise.all([first, second]);
  expect(events).toEqual(['first begins', 'first ends', 'second begins']);
});
