import pg from 'pg';
import { afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { forgetArrivals } from '../../src/store/fences.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { startProcess } from '../setup/processes.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { event, openPool, readSums } from './batch.ts';
import { createFenceScene, type FenceScene } from './fence-scene.ts';

/** Maximum milliseconds, on a busy machine, until a lane continues if it does not have to wait for a poll. */
const SOON = 5000;

describe.each(['redis', 'postgres'] as const)('the queue lives in %s', (kind) => {
  let scene: FenceScene;
  beforeEach(async () => {
    scene = await createFenceScene(kind);
  });
  afterEach(() => scene.stop());

  const events = async () => (await readSums(scene.pool, scene.workspace)).events;
  const completed = async (lane: number, id: string) => !(await scene.queues[lane]!.getJob(id));
  const active = async (lane: number, id: string) => (await scene.jobs(lane, 'active')).includes(id);
  const passed = (entries: { lane: number; id: string }[]) =>
    waitUntil(
      async () => (await Promise.all(entries.map(({ lane, id }) => completed(lane, id)))).every(Boolean),
      { what: 'the fence to be passed', deadline: SOON },
    );

  test('a fence across lanes of one worker is passed, and applied once', async () => {
    const fence = scene.fence([0, 1, 2], event('ann'));
    await scene.producer.add(fence);
    scene.startWorker([0, 1, 2]);
    await passed(fence);
    expect(await events()).toBe(1);
  });

  test.each([
    ['with notifications', false],
    ['without notifications', true],
  ])('G3: lanes of several workers %s pass a fence only after all have arrived', async (_, deaf) => {
    const fence = scene.fence([0, 1, 2], event('ann'));
    const followers = [0, 1, 2].map((lane) => scene.plain(lane, event(`after-${lane}`)));
    await scene.producer.add([...fence, ...followers]);
    scene.startWorker([0], { deaf });
    scene.startWorker([2], { deaf });
    await waitUntil(async () => (await scene.arrivals()).length === 1, { what: 'the arrival of lane 2' });
    expect(await scene.arrivals()).toEqual([{ fence: fence[0]!.id, lane: 2 }]);
    await waitUntil(() => active(0, fence[0]!.id), { what: 'lane 0 at the fence' });
    expect(await events()).toBe(0);
    scene.startWorker([1], { deaf });
    await passed([...fence, ...followers]);
    expect(await events()).toBe(4);
    expect(await scene.arrivals()).toEqual([]);
  });

  test('a worker that stops at a fence ends within 2 s, and its job is the next of the lane', async () => {
    const fence = scene.fence([0, 1], event('ann'));
    const followers = [scene.plain(0, event('bob')), scene.plain(1, event('eve'))];
    for (const lane of [0, 1]) {
      const entry = fence[lane]!;
      const stop = scene.startWorker([lane]);
      if (lane === 0) await scene.producer.add([...fence, ...followers]);
      await waitUntil(() => active(lane, entry.id), { what: `lane ${lane} at the fence` });
      expect(await stop()).toBeLessThan(2000);
      expect(await scene.jobs(lane, 'active')).toEqual([]);
      expect(await scene.jobs(lane, 'failed')).toEqual([]);
      expect(await scene.jobs(lane, 'waiting')).toEqual([entry.id, followers[lane]!.id]);
    }
    expect(await events()).toBe(0);
    scene.startWorker([0]);
    scene.startWorker([1]);
    await passed([...fence, ...followers]);
    expect(await events()).toBe(3);
  });

  test('G2: a redelivered fence lets its lanes pass, and its objects take effect once', async () => {
    const fence = scene.fence([0, 1, 2], event('ann'));
    await scene.producer.add(fence);
    const stop = scene.startWorker([0, 1, 2]);
    await passed(fence);
    await stop();
    // One entry after the other, so that each lane arrives alone.
    for (const entry of fence) {
      const again = scene.startWorker([entry.lane]);
      await scene.producer.add([entry]);
      await passed([entry]);
      await again();
    }
    expect(await events()).toBe(1);
  });

  test('a fence is passed if its worker died after COMMIT but before the announcement', async () => {
    const fence = scene.fence([0, 1], event('ann'));
    await scene.producer.add(fence);
    scene.startWorker([1]);
    await waitUntil(async () => (await scene.arrivals()).length === 1, { what: 'the arrival of lane 1' });
    // The ledger row that the dead worker had committed.
    await scene.pool.query('insert into ledger (envelope_id) values ($1)', [fence[0]!.id]);
    await passed([fence[1]!]);
  });

  test('a lost arrival is announced again', async () => {
    const fence = scene.fence([0, 1], event('ann'));
    await scene.producer.add(fence);
    scene.startWorker([1]);
    const arrived = async () => (await scene.arrivals()).length === 1;
    await waitUntil(arrived, { what: 'the arrival of lane 1' });
    await scene.pool.query("update fence_arrivals set arrived_at = now() - interval '25 hours'");
    await forgetArrivals(scene.pool);
    await waitUntil(arrived, { what: 'its second arrival' });
    scene.startWorker([0]);
    await passed(fence);
  });

  test('an envelope whose fence is invalid or for other lanes is applied without waiting', async () => {
    const odd = [{}, { id: 'x', lanes: [0, 1] }, { id: scene.workspace.id, lanes: [1, 2] }, null, 'fence'];
    const entries = odd.map((fence) => {
      const entry = scene.plain(0, event('ann'));
      entry.envelope.fence = fence as never;
      return entry;
    });
    await scene.producer.add(entries);
    scene.startWorker([0]);
    await passed(entries);
    expect(await events()).toBe(odd.length);
  });

  test('G8: the workspace of a fence waits in its lanes, and other workspaces go on', async () => {
    const other = await createWorkspace(scene.pool, 'other');
    const fence = scene.fence([0, 1], event('ann'));
    const behind = scene.plain(0, event('ann'));
    const others = [scene.plainOf(other, 0, event('bob')), scene.plainOf(other, 0, event('bob'))];
    await scene.producer.add([...fence, others[0]!, behind, others[1]!]);
    scene.startWorker([0]);
    await passed(others);
    expect((await readSums(scene.pool, other)).events).toBe(2);
    expect(await events()).toBe(0);
    scene.startWorker([1]);
    await passed([...fence, behind]);
    expect(await events()).toBe(2);
  });

  test('all workspaces wait at a fence of an earlier release, which names no workspace', async () => {
    const other = await createWorkspace(scene.pool, 'other');
    const fence = scene.earlierFence([0, 1], event('ann'));
    const [before, behind] = [0, 0].map((lane) => scene.plainOf(other, lane, event('bob')));
    await scene.producer.add([before!, ...fence, behind!]);
    scene.startWorker([0]);
    await passed([before!]);
    await waitUntil(() => active(0, fence[0]!.id), { what: 'lane 0 at the fence' });
    expect((await readSums(scene.pool, other)).events).toBe(1);
    scene.startWorker([1]);
    await passed([...fence, behind!]);
    expect((await readSums(scene.pool, other)).events).toBe(2);
  });

  test('several fences of a workspace take effect in one transaction', async () => {
    const fences = Array.from({ length: 30 }, () => scene.fence([0, 1, 2], event('ann')));
    await scene.producer.add(fences.flat());
    scene.startWorker([0]);
    scene.startWorker([1, 2]);
    await passed(fences.flat());
    expect(await events()).toBe(30);
    const { rows } = await scene.pool.query(
      'select count(distinct xmin::text)::integer as count from ledger',
    );
    expect(rows[0].count).toBeLessThan(15);
    expect(await scene.arrivals()).toEqual([]);
  });

  test('a fence does not wait for a lane beyond LANES, which no worker has', async () => {
    const fence = scene.fence([0, 63], event('ann'));
    await scene.producer.add(fence.slice(0, 1));
    scene.startWorker([0]);
    await passed(fence.slice(0, 1));
    expect(await events()).toBe(1);
  });
});

describe.each(['redis', 'postgres'] as const)('the queue lives in %s', (kind) => {
  let scene: FenceScene;
  beforeAll(async () => {
    scene = await createFenceScene(kind, { LOCK_DURATION_MS: '1500', STALLED_INTERVAL_MS: '500' });
    return scene.stop;
  });

  test('G3: after a worker is killed at a fence, another passes it, and the arrival stays valid', async () => {
    const fence = scene.fence([0, 1], event('ann'));
    const followers = scene.plain(1, event('eve'));
    await scene.queues[0]!.pause();
    await scene.producer.add([...fence, followers]);
    const victim = startProcess('dist/workers/worker.js', {
      ...scene.env,
      WORKER_PORT: '0',
      LOG_LEVEL: 'warn',
    });
    await waitUntil(async () => (await scene.arrivals()).length === 1, { what: 'the arrival of lane 1' });
    victim.kill('SIGKILL');
    await victim.exit;
    await scene.queues[0]!.resume();
    scene.startWorker([0]);
    await waitUntil(() => scene.ledger(fence[0]!.id), { what: 'the fence to be applied' });
    // A job that becomes active between the two queries is found by the second one.
    const left = async () => [...(await scene.jobs(1, 'waiting')), ...(await scene.jobs(1, 'active'))];
    expect(await left()).toHaveLength(2);
    scene.startWorker([1]);
    await waitUntil(async () => (await left()).length === 0, { what: 'lane 1 to continue' });
    expect((await readSums(scene.pool, scene.workspace)).events).toBe(2);
  });
});

test('lanes of one worker pass fences while queries about fences fail', async () => {
  const scene = await createFenceScene('postgres');
  const closed = openPool(scene.env.DATABASE_URL);
  await closed.end();
  const fence = scene.fence([0, 1, 2], event('ann'));
  await scene.producer.add(fence);
  scene.startWorker([0, 1, 2], { fenceStore: closed });
  await waitUntil(async () => (await readSums(scene.pool, scene.workspace)).events === 1, {
    what: 'the fence to be applied',
    deadline: SOON,
  });
  await scene.stop();
});

test('a worker at a fence stops within 2 s while Postgres does not answer queries about fences', async () => {
  const scene = await createFenceScene('postgres');
  const silentStore = new pg.Pool({ connectionString: scene.env.DATABASE_URL, max: 1 });
  const taken = await silentStore.connect();
  const fence = scene.fence([0, 1], event('ann'));
  await scene.producer.add(fence);
  const stop = scene.startWorker([0], { fenceStore: silentStore });
  await waitUntil(() => silentStore.waitingCount === 1, { what: 'the query about the fence' });
  expect(await stop()).toBeLessThan(2000);
  expect(await scene.jobs(0, 'waiting')).toEqual([fence[0]!.id]);
  taken.release();
  await silentStore.end();
  await scene.stop();
});
