import { expect, test } from 'vitest';
import { Batcher } from '../../src/platform/batcher.ts';

class Outage extends Error {}

interface Limits {
  maxCalls?: number;
  maxBytes?: number;
  startsAtOnce?: boolean;
}

/** Creates a batcher of numbers, each as many bytes as its value, whose batches the test ends. */
function createScene({ maxCalls = 10, maxBytes = 1000, startsAtOnce = false }: Limits = {}) {
  const batches: { keys: number[]; end(error?: Error): void; answer(results: number[]): void }[] = [];
  const batcher = new Batcher<number, number>({
    run: (keys) =>
      new Promise((resolve, reject) => {
        const end = (error?: Error) => (error ? reject(error) : resolve(keys.map((key) => key * 10)));
        batches.push({ keys, end, answer: resolve });
      }),
    ...{ maxCalls, maxBytes, startsAtOnce },
    bytesOf: (key) => key,
    isOutage: (error) => error instanceof Outage,
  });
  const callAll = (keys: number[]) => Promise.allSettled(keys.map((key) => batcher.call(key)));
  return { batcher, batches, callAll, keys: () => batches.map(({ keys }) => keys) };
}

const turn = () => new Promise(setImmediate);

/** Ends every batch with its results until all calls have ended. Ending a batch twice has no effect. */
async function endAll<Ended>(batches: { end(): void }[], ended: Promise<Ended>): Promise<Ended> {
  let isOver = false;
  void ended.finally(() => {
    isOver = true;
  });
  while (!isOver) {
    await turn();
    batches.at(-1)?.end();
  }
  return ended;
}

const values = (settled: PromiseSettledResult<number>[]) =>
  settled.map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as Error).message));

test('calls during a batch share the next batch, and each call gets its result', async () => {
  const { batches, callAll, keys } = createScene();
  const first = callAll([1]);
  await turn();
  const others = callAll([2, 3, 4]);
  await turn();
  expect(keys()).toEqual([[1]]);
  expect(values(await endAll(batches, others))).toEqual([20, 30, 40]);
  expect(values(await first)).toEqual([10]);
  expect(keys()).toEqual([[1], [2, 3, 4]]);
});

test('concurrent calls share the first batch, unless the batcher starts at once', async () => {
  for (const [startsAtOnce, expected] of [
    [false, [[1, 2]]],
    [true, [[1], [2]]],
  ] as const) {
    const { batches, callAll, keys } = createScene({ startsAtOnce });
    await endAll(batches, callAll([1, 2]));
    expect(keys()).toEqual(expected);
  }
});

test('a batch has at most maxCalls calls', async () => {
  const { batches, callAll, keys } = createScene({ maxCalls: 2 });
  expect(values(await endAll(batches, callAll([1, 2, 3, 4, 5])))).toEqual([10, 20, 30, 40, 50]);
  expect(keys()).toEqual([[1, 2], [3, 4], [5]]);
});

test('a batch has at most maxBytes bytes of keys, and a larger key has a batch of its own', async () => {
  const { batches, callAll, keys } = createScene({ maxBytes: 10 });
  expect(values(await endAll(batches, callAll([4, 6, 1, 30, 9, 2])))).toEqual([40, 60, 10, 300, 90, 20]);
  expect(keys()).toEqual([[4, 6], [1], [30], [9], [2]]);
});

test('an error rejects the calls of its batch, and waiting calls get their results', async () => {
  const { batches, callAll, keys } = createScene({ maxCalls: 2 });
  const ended = callAll([1, 2, 3, 4]);
  await turn();
  batches[0]!.end(new Error('invalid'));
  await turn();
  batches[1]!.end();
  expect(values(await ended)).toEqual(['invalid', 'invalid', 30, 40]);
  expect(keys()).toEqual([
    [1, 2],
    [3, 4],
  ]);
});

test('G5: an outage rejects waiting calls without another batch, and the next call starts one', async () => {
  const { batcher, batches, callAll, keys } = createScene({ maxCalls: 1 });
  const ended = callAll([1, 2, 3]);
  await turn();
  expect(batcher.waiting).toBe(2);
  batches[0]!.end(new Outage('away'));
  expect(values(await ended)).toEqual(['away', 'away', 'away']);
  expect(batcher.waiting).toBe(0);
  const next = callAll([4]);
  await turn();
  batches[1]!.end();
  expect(values(await next)).toEqual([40]);
  expect(keys()).toEqual([[1], [4]]);
});

test('calls without a result come first in the next batch', async () => {
  const { batches, callAll, keys } = createScene();
  const ended = callAll([1, 2, 3]);
  await turn();
  const later = callAll([4]);
  batches[0]!.answer([10]);
  await turn();
  expect(values(await endAll(batches, ended))).toEqual([10, 20, 30]);
  expect(values(await later)).toEqual([40]);
  expect(keys()).toEqual([
    [1, 2, 3],
    [2, 3, 4],
  ]);
});

test('a batch without any result rejects its calls instead of running indefinitely', async () => {
  const { batches, callAll } = createScene();
  const ended = callAll([1, 2]);
  await turn();
  batches[0]!.answer([]);
  const message = 'a batch returned no result';
  expect(values(await ended)).toEqual([message, message]);
});
