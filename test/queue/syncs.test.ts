import { v7 as uuidv7 } from 'uuid';
import { beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { SYNC_QUEUE } from '../../src/jobs/catalog.ts';
import { Worker } from '../../src/queue/bullmq.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import { createSyncQueue, type SyncQueue } from '../../src/queue/syncs.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createScene, type Scene } from './scene.ts';

/** The shortest interval, so that the test does not wait long. */
const EVERY_SECOND = '* * * * * *';
const NIGHTLY = '0 3 * * *';
const HOURLY = '0 * * * *';

describe.each(['redis', 'postgres'] as const)('the queue of syncs in %s', (kind) => {
  let scene: Scene;
  let syncs: SyncQueue;
  let queue: ReturnType<typeof openQueue<Record<string, string>>>;

  beforeAll(async () => {
    scene = await createScene(kind, { QUEUE_TIMEOUT_MS: '20000' });
    syncs = createSyncQueue(scene.connection, 20_000);
    queue = openQueue(scene.connection, SYNC_QUEUE);
    return async () => {
      await queue.close();
      await syncs.stop();
      await scene.stop();
    };
  });
  beforeEach(async () => {
    await syncs.follow([]);
    await queue.drain(true);
  });

  /** Starts a process that takes jobs from the queue, and records them in order. */
  async function take(work: (name: string) => Promise<void> = async () => {}) {
    const connection = connectWorker(scene.config, scene.config.DATABASE_URL);
    await waitUntil(() => connection.ready(), { what: 'the queue' });
    const taken: { name: string; data: Record<string, string> }[] = [];
    const worker = new Worker<Record<string, string>>(
      SYNC_QUEUE,
      async ({ name, data }) => {
        taken.push({ name, data });
        await work(name);
      },
      { ...connection.options, drainDelay: 0.1 },
      connection.factory,
    );
    worker.on('error', () => {});
    const stop = async () => {
      await worker.close();
      await connection.stop();
    };
    return { taken, stop };
  }

  test('a run that is added twice is queued once', async () => {
    const run = uuidv7();
    await syncs.add(run);
    await syncs.add(run);
    const { taken, stop } = await take();
    const last = uuidv7();
    await syncs.add(last);
    await waitUntil(() => taken.some(({ data }) => data.job_id === last), { what: 'both runs' });
    await stop();
    expect(taken).toEqual([run, last].map((id) => ({ name: 'sync', data: { job_id: id } })));
  });

  test('a run can be added again after its job has succeeded or failed', async () => {
    const run = uuidv7();
    const { taken, stop } = await take(async () => {
      if (taken.length === 1) throw new Error('the first time');
    });
    for (const times of [1, 2, 3]) {
      await waitUntil(async () => (await queue.getJob(run)) === undefined, { what: 'its job to be gone' });
      await syncs.add(run);
      await waitUntil(() => taken.length === times, { what: `take ${times}` });
    }
    await stop();
  });

  test('schedulers are created, changed and removed to match the wanted ones', async () => {
    const [one, two, three] = [uuidv7(), uuidv7(), uuidv7()];
    expect(
      await syncs.follow([
        { id: one, pattern: NIGHTLY },
        { id: two, pattern: NIGHTLY },
      ]),
    ).toEqual({ changed: 2, made: [one, two] });
    expect(
      await syncs.follow([
        { id: two, pattern: HOURLY },
        { id: three, pattern: NIGHTLY },
      ]),
    ).toEqual({ changed: 3, made: [three] });
    const wanted = [
      { id: two, pattern: HOURLY },
      { id: three, pattern: NIGHTLY },
    ];
    const byId = (a: { id: string }, b: { id: string }) => (a.id < b.id ? -1 : 1);
    expect((await syncs.scheduled()).sort(byId)).toEqual(wanted.sort(byId));
    expect(await syncs.follow(wanted)).toEqual({ changed: 0, made: [] });
    await syncs.unschedule(two);
    expect(await syncs.scheduled()).toEqual([{ id: three, pattern: NIGHTLY }]);
    // Removing a scheduler also removes its jobs.
    expect((await queue.getDelayed()).map(({ data }) => data)).toEqual([{ integration_id: three }]);
  });

  test("the next run is at the pattern's time in UTC", async () => {
    const id = uuidv7();
    await syncs.schedule({ id, pattern: NIGHTLY });
    const next = new Date((await queue.getJobScheduler(id))!.next!);
    expect([next.getUTCHours(), next.getUTCMinutes()]).toEqual([3, 0]);
    expect(next.getTime() - Date.now()).toBeLessThanOrEqual(86_400_000);
  });

  test('a scheduler adds a run at each of its times, once for all processes together', async () => {
    const id = uuidv7();
    const processes = [await take(), await take(), await take()];
    await syncs.schedule({ id, pattern: EVERY_SECOND });
    const started = Date.now();
    const taken = () => processes.flatMap((one) => one.taken);
    await waitUntil(() => taken().length >= 3, { what: 'three runs' });
    await syncs.unschedule(id);
    const seconds = (Date.now() - started) / 1000;
    for (const { stop } of processes) await stop();
    expect(taken().every(({ name, data }) => name === 'scheduled' && data.integration_id === id)).toBe(true);
    expect(taken().length).toBeLessThanOrEqual(seconds + 1);
  });

  test('a run that was due without a process is made up for, even if the schedule is set again', async () => {
    const id = uuidv7();
    const time = new Date(Date.now() + 2000);
    const pattern = `${time.getUTCSeconds()} ${time.getUTCMinutes()} ${time.getUTCHours()} * * *`;
    await syncs.follow([{ id, pattern }]);
    const due = (await queue.getJobScheduler(id))!.next!;
    await waitUntil(() => Date.now() > due + 500, { what: 'its time to pass' });
    await syncs.follow([{ id, pattern }]);
    await syncs.schedule({ id, pattern });
    const { taken, stop } = await take();
    await waitUntil(() => taken.length === 1, { what: 'the run that was missed' });
    await waitUntil(async () => (await queue.getJobScheduler(id))?.next === due + 86_400_000, {
      what: 'the next one tomorrow',
    });
    await stop();
    expect(taken).toEqual([{ name: 'scheduled', data: { integration_id: id } }]);
  });

  test('several runs that were due without a process are made up for by one run', async () => {
    const id = uuidv7();
    await syncs.schedule({ id, pattern: EVERY_SECOND });
    const due = (await queue.getJobScheduler(id))!.next!;
    await waitUntil(() => Date.now() > due + 3000, { what: 'its times to pass' });
    const { taken, stop } = await take();
    await waitUntil(() => taken.length >= 1, { what: 'the run that was missed' });
    const next = await waitUntil(
      async () => {
        const at = (await queue.getJobScheduler(id))?.next;
        return at !== undefined && at > due && at;
      },
      { what: 'the next time' },
    );
    expect(next).toBeGreaterThan(due + 2000);
    await syncs.unschedule(id);
    await stop();
  });
});
