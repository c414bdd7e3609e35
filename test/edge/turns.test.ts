import { setTimeout as sleep } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { createTurns } from '../../src/edge/turns.ts';
import { RendererBusy } from '../../src/preferences/renderer.ts';

/** Works that end when told, with what has begun so far. */
function works() {
  const begun: number[] = [];
  const ends: (() => void)[] = [];
  const work = (number: number) => () =>
    new Promise<number>((resolve) => {
      begun.push(number);
      ends[number] = () => resolve(number);
    });
  return { begun, work, end: (number: number) => ends[number]!() };
}

test('so many are in hand at once; the others wait for their turn, in their order', async () => {
  const { take } = createTurns({ atOnce: 2, most: 10, patience: 10_000 });
  const { begun, work, end } = works();
  const all = [0, 1, 2, 3].map((number) => take(work(number)));
  await sleep(10);
  expect(begun).toEqual([0, 1]);
  end(1);
  expect(await all[1]).toBe(1);
  expect(begun).toEqual([0, 1, 2]);
  end(0);
  end(2);
  await all[2];
  end(3);
  expect(await Promise.all(all)).toEqual([0, 1, 2, 3]);
  // Nobody is left: all places are free again.
  const again = [4, 5].map((number) => take(work(number)));
  expect(begun.slice(-2)).toEqual([4, 5]);
  for (const number of [4, 5]) end(number);
  await Promise.all(again);
});

test('whoever waits too long is refused, and is no longer in the way', async () => {
  const { take } = createTurns({ atOnce: 1, most: 10, patience: 100 });
  const { begun, work, end } = works();
  const first = take(work(0));
  await expect(take(work(1))).rejects.toThrow(RendererBusy);
  end(0);
  await first;
  const third = take(work(2));
  end(2);
  await third;
  expect(begun).toEqual([0, 2]);
});

test('G5: with too many waiting it is refused at once; work that fails gives its place on', async () => {
  const { take } = createTurns({ atOnce: 1, most: 1, patience: 10_000 });
  const failing = take(async () => {
    await sleep(50);
    throw new Error('broken');
  });
  const waiting = take(async () => 'done');
  const from = performance.now();
  await expect(take(async () => 'refused')).rejects.toThrow(RendererBusy);
  expect(performance.now() - from).toBeLessThan(40);
  await expect(failing).rejects.toThrow('broken');
  expect(await waiting).toBe('done');
});
