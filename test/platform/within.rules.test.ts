import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { unlessUnavailable, withTimeout } from '../../src/platform/lifecycle.ts';

const never = new Promise<never>(() => {});

test('work that ends in time returns its value, or fails with its error', async () => {
  const { signal } = new AbortController();
  expect(await withTimeout(60_000, Promise.resolve('done'), { signal })).toBe('done');
  await expect(withTimeout(60_000, Promise.reject(new Error('broken')), { signal })).rejects.toThrow(
    'broken',
  );
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

test('a timeout fails with a default error, or with the given one', async () => {
  await expect(withTimeout(1, never)).rejects.toThrow('no answer within 1 ms');
  await expect(withTimeout(1, never, { late: () => new RangeError('late') })).rejects.toThrow(RangeError);
});

test('an aborted wait ends at once, whether aborted before or during it', async () => {
  const leaving = new AbortController();
  const waiting = withTimeout(60_000, never, { signal: leaving.signal });
  leaving.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  await expect(withTimeout(60_000, never, { signal: leaving.signal })).rejects.toThrow('gone');
});

test('a store is not asked while it is known to be unavailable', async () => {
  let calls = 0;
  const send = async () => ++calls;
  await expect(unlessUnavailable(() => true, send)).rejects.toThrow('the store is unavailable');
  expect(calls).toBe(0);
  expect(await unlessUnavailable(() => false, send)).toBe(1);
});

test('a wait for a store ends when the store becomes unavailable, and later errors are ignored', async () => {
  let fail = (_error: Error) => {};
  const work = new Promise<never>((_resolve, reject) => {
    fail = reject;
  });
  let checks = 0;
  await expect(
    unlessUnavailable(
      () => ++checks > 1,
      () => work,
    ),
  ).rejects.toThrow('unavailable');
  fail(new Error('connection terminated'));
});
