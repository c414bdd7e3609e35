import type pg from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readTotals } from '../../src/store/counters.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import type { TestWorkspace } from '../setup/workspace.ts';
import { applyBatch } from './apply-batch.ts';
import { createStore, deliver, event, makeTriggers, point, readSums, refuseEvents } from './batch.ts';

let pool: pg.Pool;
let workspace: TestWorkspace;
beforeAll(async () => {
  ({ pool, workspace } = await createStore());
  await refuseEvents(pool, 'poison');
});
afterAll(() => pool.end());

/** Returns the counters: objects that took effect, failed attempts, data points. */
async function counters() {
  const { objects, deadLetters } = await readTotals(pool);
  const { usage } = await readSums(pool, workspace);
  return { objects, deadLetters, usage };
}

/** Returns a new envelope with the same object, as a replay of its dead letter creates it. */
function replayOf({ envelope: { requests, objects } }: Delivery, index: number): Delivery {
  const request = { ...requests[0]!, count: 1 };
  return {
    id: uuidv7(),
    lane: 0,
    envelope: { requests: [request], objects: [objects[index]!], replay: true },
  };
}

test('a dead letter does not count as applied, and a retried object is one data point', async () => {
  const delivery = deliver(workspace, [point('ann'), event('ann'), event('ann', 'poison')]);
  await applyBatch(pool, [delivery]);
  expect(await counters()).toEqual({ objects: 2, deadLetters: 1, usage: 2 });

  await applyBatch(pool, [replayOf(delivery, 2)]);
  expect(await counters()).toEqual({ objects: 2, deadLetters: 2, usage: 2 });

  await makeTriggers(pool, ['drop trigger refuse on events']);
  const replay = replayOf(delivery, 2);
  await applyBatch(pool, [replay]);
  expect(await counters()).toEqual({ objects: 3, deadLetters: 2, usage: 3 });

  await applyBatch(pool, [replay, delivery]);
  expect(await counters()).toEqual({ objects: 3, deadLetters: 2, usage: 3 });
  expect(await readSums(pool, workspace)).toMatchObject({ points: 1, events: 2, counted: 2 });
});
