import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import type { Coalescer } from '../../workers/batch/coalescer.ts';
import type { Follower } from '../../workers/batch/fairness.ts';
import type { Delivery } from '../../workers/batch/open.ts';
import { startLane } from '../../workers/lane/lane.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { event, silent } from './batch.ts';
import { createFenceScene } from './fence-scene.ts';

let scene: Awaited<ReturnType<typeof createFenceScene>>;
beforeAll(async () => {
  scene = await createFenceScene('redis');
});
afterAll(() => scene.stop());
afterEach(() => scene.queues[0]!.drain());

/** A lane whose batches are cut when the test says so, and end when it lets them. */
async function startCutLane() {
  const config = readConfig(scene.env);
  const connection = connectWorker(config, scene.env.DATABASE_URL);
  const handedIn: Delivery[] = [];
  const ends: (() => void)[] = [];
  let follower: Follower | undefined;
  const coalescer: Coalescer = {
    apply(...deliveries) {
      handedIn.push(...deliveries);
      return new Promise((end) => ends.push(end));
    },
    beside: { apply: async () => undefined, isFree: () => false },
    follow(_, heard) {
      follower = heard;
    },
    abandon() {},
  };
  const lane = startLane(0, {
    laneStore: connection.laneStore,
    coalescer,
    fences: {} as never,
    config,
    log: silent,
  });
  return {
    handedIn,
    /** As the coalescer does: these are not applied yet. */
    cut: (pending: Delivery[]) => follower!.onCut(new Set(pending.map(({ id }) => id))),
    async end() {
      for (const end of ends) end();
      await lane.stop();
      await connection.stop();
    },
  };
}

const thousand = () => scene.plain(0, ...Array.from({ length: 1000 }, () => event('ann')));

test('G5: a lane whose batch is cut again and again holds no more than a few transactions in hand, and goes on as they end', async () => {
  await scene.producer.add([scene.plain(0, event('ann'))]);
  const lane = await startCutLane();
  await waitUntil(() => lane.handedIn.length === 1, { what: 'the job in work' });
  const [head] = lane.handedIn;
  for (let added = 0; added < 30; added++) await scene.producer.add([thousand()]);
  for (let times = 0; times < 12; times++) await lane.cut(lane.handedIn);
  const held = lane.handedIn.length;
  // Four transactions of 4,000 objects, and what was read at once behind that.
  expect(held).toBeGreaterThan(16);
  expect(held).toBeLessThanOrEqual(1 + 16 + 4);
  await lane.cut([head!]);
  expect(lane.handedIn.length).toBeGreaterThan(held);
  await lane.end();
});

test('G3: a lane whose job has been handed to another worker takes nothing more in hand, though its batch is cut', async () => {
  const entries = Array.from({ length: 3 }, () => scene.plain(0, event('ann')));
  await scene.producer.add(entries.slice(0, 1));
  const lane = await startCutLane();
  await waitUntil(() => lane.handedIn.length === 1, { what: 'the job in work' });
  const [head] = lane.handedIn;
  await scene.producer.add(entries.slice(1));
  // As when a process is frozen for longer than its lock.
  const job = await scene.queues[0]!.getJob(head!.id);
  const lock = await scene.connection.redis!.get(`${scene.queues[0]!.toKey(head!.id)}:lock`);
  await job!.moveToWait(lock!);
  await (await scene.handOut('other')).moveToCompleted(undefined as never, 'other', false);
  const next = await scene.handOut('other');
  expect(next.id).toBe(entries[1]!.id);
  await lane.cut([head!]);
  expect(lane.handedIn).toEqual([head]);
  await next.moveToCompleted(undefined as never, 'other', false);
  await lane.end();
});
