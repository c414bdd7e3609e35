import { expect, test } from 'vitest';
import { batchCalls } from '../../src/platform/concurrency.ts';

/** Creates batched calls that the test ends. */
function scene(most: number) {
  const calls: { requested: number[]; end(error?: Error): void }[] = [];
  const send = batchCalls(
    (requested: number[]) =>
      new Promise<number[]>((resolve, reject) => {
        const end = (error?: Error) => (error ? reject(error) : resolve(requested.map((one) => one * 10)));
        calls.push({ requested, end });
      }),
    most,
  );
  return { send, calls };
}

const turn = () => new Promise(setImmediate);

test('requests made during a call share the next call, in batches of limited size', async () => {
  const { send, calls } = scene(2);
  const first = Promise.all([send(1)]);
  await turn();
  const others = Promise.all([send(2), send(3), send(4)]);
  await turn();
  expect(calls.map(({ requested }) => requested)).toEqual([[1]]);
  calls[0]!.end();
  expect(await first).toEqual([10]);
  await turn();
  calls[1]!.end();
  await turn();
  calls[2]!.end();
  expect(await others).toEqual([20, 30, 40]);
  expect(calls.map(({ requested }) => requested)).toEqual([[1], [2, 3], [4]]);
});

test('requests that wait for a failing call fail with it, and the next request starts a call', async () => {
  const { send, calls } = scene(1);
  const response = [send(1), send(2)];
  const results = Promise.allSettled(response);
  await turn();
  calls[0]!.end(new Error('away'));
  expect((await results).map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  const next = send(3);
  await turn();
  calls[1]!.end();
  expect(await next).toBe(30);
});
