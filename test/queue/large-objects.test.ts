import { beforeAll, describe, expect, test } from 'vitest';
import { laneOf, QueueUnavailable } from '../../src/queue/lanes.ts';
import { createScene, LANES, people, type Scene, workspaceId } from './scene.ts';

describe.each(['redis', 'postgres'] as const)('the queue lives in %s', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    // Megabytes take long on a machine that is busy with other tests.
    scene = await createScene(kind, { QUEUE_TIMEOUT_MS: '20000' });
    return scene.stop;
  });

  test('G5: flushes and envelopes with large objects are bounded in bytes', async () => {
    const { send, adds, addedBytes } = await scene.begin({ maxPendingBytes: 25_000_000 });
    // The text, plus the other members of an object.
    const bound = 4_194_304 + 100_000;
    await Promise.all(people(12).map((_, index) => send(index, ['ann'], 1_000_000)));
    expect(adds.length).toBeGreaterThan(2);
    for (const bytes of addedBytes) expect(bytes).toBeLessThan(bound);
    // A single request may fill several envelopes.
    await send(12, ['ann', 'ann', 'ann', 'ann', 'ann', 'ann'], 1_000_000);
    for (const envelope of await scene.envelopesOf(laneOf(workspaceId, 'x:ann', LANES)))
      expect(JSON.stringify(envelope).length).toBeLessThan(bound);
    const numbers = (await scene.everything()).map(({ number }) => number);
    expect(numbers).toEqual([...people(12).map((_, index) => index), ...Array(6).fill(12)]);
  });

  test('G5: a request above the share of pending bytes is refused at once; the others wait', async () => {
    // One workspace may have half of it.
    const { send } = await scene.begin({ maxPendingBytes: 2_000_000 });
    const resume = await scene.stall();
    let answered = 0;
    const waiting = people(10).map((_, index) =>
      send(index, ['ann'], 100_000).finally(() => {
        answered++;
      }),
    );
    await expect(send(10, ['one too many'], 100)).rejects.toBeInstanceOf(QueueUnavailable);
    expect(answered).toBe(0);
    await resume();
    await Promise.all(waiting);
    expect(await scene.everything()).toHaveLength(10);
    await send(11, ['ann'], 1_000_000);
  });
});
