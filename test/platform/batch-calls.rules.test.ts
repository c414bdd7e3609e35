import { expect, test } from 'vitest';
import { batchCalls } from '../../src/platform/concurrency.ts';

/** Creates batched calls that the test ends. */
function scene(most: number) {
  const calls: { asked: number[]; end(error?: Error): void }[] = [];
  const ask = batchCalls(
    (asked: number[]) =>
      new Promise<number[]>((resolve, reject) => {
        const end = (error?: Error) => (error ? reject(error) : resolve(asked.map((one) => one * 10)));
        calls.push({ asked, end });
      }),
    most,
  );
  return { ask, calls };
}

const turn = () => new Promise(setImmediate);

test('requests made during a call share the next call, in batches of limited size', async () => {
  const { ask, calls } = scene(2);
  const first = Promise.all([ask(1)]);
  await turn();
  const others = Promise.all([ask(2), ask(3), ask(4)]);
  await turn();
  expect(calls.map(({ asked }) => asked)).toEqual([[1]]);
  calls[0]!.end();
  expect(await first).toEqual([10]);
  await turn();
  calls[1]!.end();
  await turn();
  calls[2]!.end();
  expect(await others).toEqual([20, 30, 40]);
  expect(calls.map(({ asked }) => asked)).toEqual([[1], [2, 3], [4]]);
});

test('requests that wait for a failing call fail with it, and the next request starts a call', async () => {
  const { ask, calls } = scene(1);
  const asked = [ask(1), ask(2)];
  const settled = Promise.allSettled(asked);
  await turn();
  calls[0]!.end(new Error('away'));
  expect((await settled).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  const next = ask(3);
  await turn();
  calls[1]!.end();
  expect(await next).toBe(30);
});
