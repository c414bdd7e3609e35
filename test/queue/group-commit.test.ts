import { v7 as uuidv7 } from 'uuid';
import { beforeAll, describe, expect, test } from 'vitest';
import { laneOf } from '../../src/queue/lanes.ts';
import { startUpkeep } from '../../workers/upkeep/upkeep.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createScene, LANES, log, people, type Scene, workspaceId } from './scene.ts';

describe.each(['redis', 'postgres'] as const)('the queue lives in %s', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await createScene(kind);
    return scene.stop;
  });

  test('requests that arrive during an add share the next one', async () => {
    const { send, adds, pending } = await scene.begin();
    const first = send(0, ['ann', 'bob']);
    await waitUntil(() => adds.length === 1, { what: 'the first add' });
    const others = people(100).map((user, index) => send(index + 1, [user]));
    await Promise.all([first, ...others]);
    expect(adds).toHaveLength(2);
    expect(adds[1]).toBeLessThanOrEqual(LANES);
    expect(await scene.everything()).toHaveLength(102);
    expect(pending()).toBe(0);
  });

  test('an object is added to the lane of its identifier, with its own request', async () => {
    const { send } = await scene.begin();
    await Promise.all(people(50).map((user, index) => send(index, [user, 'ann'])));
    for (let lane = 0; lane < LANES; lane++) {
      for (const { user, number, sent } of await scene.contentsOf(lane)) {
        expect(laneOf(workspaceId, user, LANES)).toBe(lane);
        expect(sent).toBe(number);
      }
    }
  });

  test('G3: objects of one identifier are in their lane in the order of their requests', async () => {
    const { send, adds } = await scene.begin();
    // Some are sent during a flush, so that they are stored in several adds.
    const sent: Promise<unknown>[] = [];
    for (let number = 0; number < 90; number++) {
      sent.push(send(number, people(10)));
      if (number % 30 === 29) await sent[number - 20];
    }
    await Promise.all(sent);
    expect(adds.length).toBeGreaterThan(2);
    const contents = await scene.everything();
    expect(contents).toHaveLength(900);
    for (const user of people(10)) {
      const numbers = contents.filter((object) => object.user === `x:${user}`).map(({ number }) => number);
      expect(numbers).toEqual(Array.from({ length: 90 }, (_, number) => number));
    }
  });

  test('an envelope never exceeds its maximum number of objects', async () => {
    const { send } = await scene.begin({ maxEnvelopeObjects: 7 });
    await Promise.all(people(40).map((_, index) => send(index, ['ann', 'bob'])));
    for (let lane = 0; lane < LANES; lane++) {
      for (const { objects } of await scene.envelopesOf(lane)) expect(objects.length).toBeLessThanOrEqual(7);
    }
    expect(await scene.everything()).toHaveLength(80);
  });

  test('G5: a request above the limit of pending objects is refused at once; the others wait', async () => {
    const { send, sendOf, pending } = await scene.begin({ maxPendingObjects: 1000 });
    const resume = await scene.stall();
    const waiting = people(10).map((_, index) => sendOf(uuidv7(), index, people(100)));
    await expect(send(10, ['one too many'])).rejects.toMatchObject({ limit: 'pending_objects' });
    // The other requests still wait.
    expect(pending()).toBe(1000);
    await resume();
    await Promise.all(waiting);
    expect(pending()).toBe(0);
    expect(await scene.everything()).toHaveLength(1000);
    await send(11, ['ann']);
  });

  test('G5: a workspace may hold as much as is free: one half, two a third each; room is left', async () => {
    const { sendOf, pending } = await scene.begin({ maxPendingObjects: 900, maxPendingBytes: 1e6 });
    const resume = await scene.stall();
    const [one, other, quiet] = [uuidv7(), uuidv7(), uuidv7()];
    const waiting = [1, 2, 3, 4].map((number) => sendOf(one, number, people(100)));
    await expect(sendOf(one, 5, people(51))).rejects.toMatchObject({
      ...{ name: 'QueueUnavailable', limit: 'share' },
    });
    waiting.push(...[6, 7].map((number) => sendOf(other, number, people(100))));
    await expect(sendOf(other, 8, people(100))).rejects.toMatchObject({ limit: 'share' });
    await expect(sendOf(one, 9, people(1))).rejects.toMatchObject({ limit: 'share' });
    // The first request of a workspace is accepted if there is room, regardless of its size.
    waiting.push(sendOf(quiet, 10, people(300)));
    expect(pending()).toBe(900);
    await resume();
    await Promise.all(waiting);
    expect(pending()).toBe(0);
    await sendOf(one, 11, people(400));
  });

  test('G5: if the queue does not answer, all waiting requests are rejected', async () => {
    const { send, adds, pending } = await scene.begin();
    const resume = await scene.stall();
    const started = performance.now();
    const first = send(0, ['ann']);
    await waitUntil(() => adds.length === 1, { what: 'the first add' });
    const results = await Promise.allSettled([first, send(1, ['bob']), send(2, ['eve'])]);
    expect(performance.now() - started).toBeLessThan(5000);
    await resume();
    for (const result of results) {
      expect(result).toMatchObject({ status: 'rejected', reason: { name: 'QueueUnavailable' } });
    }
    expect(pending()).toBe(0);
  });

  test('G3: a worker sets the limit of one job at a time again within seconds of its loss', async () => {
    const { connection, pool, config, queues } = scene;
    const upkeep = await startUpkeep({
      laneStore: connection.laneStore,
      pool,
      objects: () => 0,
      config,
      log,
    });
    const limits = () => Promise.all(queues.map((queue) => queue.getGlobalConcurrency()));
    expect(await limits()).toEqual([1, 1, 1, 1]);
    await queues[2]!.removeGlobalConcurrency();
    expect(await limits()).toEqual([1, 1, null, 1]);
    await waitUntil(async () => (await limits()).every((limit) => limit === 1), {
      what: 'the limit',
      deadline: 8000,
    });
    await upkeep.stop();
  });
});
