import type { Queue } from 'bullmq';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openQueue } from '../../src/queue/connection.ts';
import { type WaitingJobs, waitingIn } from '../../src/queue/waiting.ts';
import { createFenceScene, type FenceScene } from '../workers/fence-scene.ts';

describe.each(['redis', 'postgres'] as const)('queue on %s', (kind) => {
  let scene: FenceScene;
  let queue: Queue<{ number: number }>;
  let waiting: WaitingJobs<{ number: number }>;
  const numbers = Array.from({ length: 300 }, (_, number) => number);
  const before = Date.now();
  beforeAll(async () => {
    scene = await createFenceScene(kind);
    queue = openQueue(scene.connection, 'numbers');
    // One by one, as they are accepted.
    for (const number of numbers) await queue.add('number', { number }, { jobId: `job-${number}` });
    waiting = waitingIn(scene.connection, queue);
  });
  afterAll(async () => {
    await queue.close();
    await scene.stop();
  });

  test('G3: the first of many waiting jobs are those that are handed out first, in that order', async () => {
    expect(await waiting.ids(5)).toEqual([0, 1, 2, 3, 4].map((number) => `job-${number}`));
    expect(await waiting.ids(1000)).toEqual(numbers.map((number) => `job-${number}`));
    expect((await waiting.oldest())?.id).toBe('job-0');
  });

  test('jobs come in the order in which they are asked for, without those that are gone', async () => {
    const jobs = await waiting.jobs(['job-7', 'nobody', 'job-2']);
    expect(jobs.map((job) => job?.data.number)).toEqual([7, undefined, 2]);
    expect(jobs[0]!.timestamp).toBeGreaterThanOrEqual(before);
    expect(jobs[0]!.timestamp).toBeLessThanOrEqual(Date.now());
  });

  test('G5: of many jobs no more come than make the bytes that are wanted, and one at least', async () => {
    const ids = numbers.map((number) => `job-${number}`);
    expect((await waiting.jobs(ids, 1)).map((job) => job?.data.number)).toEqual([0]);
    const some = await waiting.jobs(ids, 1000);
    expect(some.map((job) => job?.data.number)).toEqual(numbers.slice(0, some.length));
    expect(some.length).toBeGreaterThan(10);
    expect(some.length).toBeLessThan(100);
    expect(await waiting.jobs(ids)).toHaveLength(numbers.length);
  });

  test('jobs that are removed wait no longer; of those that are gone nothing is said', async () => {
    await waiting.remove(['job-0', 'nobody', 'job-2']);
    expect(await waiting.ids(3)).toEqual(['job-1', 'job-3', 'job-4']);
    for (const id of ['job-0', 'job-2']) expect(await queue.getJob(id)).toBeUndefined();
    expect(await queue.getJob('job-1')).toMatchObject({ data: { number: 1 } });
  });

  test('more jobs than one command removes are removed all, also one that waits for its time', async () => {
    await queue.add('number', { number: 300 }, { jobId: 'later', delay: 3_600_000 });
    const gone = [...numbers.slice(5).map((number) => `job-${number}`), 'later'];
    await waiting.remove(gone);
    expect(await waiting.ids(1000)).toEqual(['job-1', 'job-3', 'job-4']);
    for (const id of gone) expect(await queue.getJob(id)).toBeUndefined();
  });

  test('a queue in which nothing waits has no oldest', async () => {
    const empty = openQueue(scene.connection, 'nothing');
    expect(await waitingIn(scene.connection, empty).oldest()).toBeUndefined();
    await empty.close();
  });
});
