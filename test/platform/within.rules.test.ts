import { getEventListeners } from 'node:events';
import { expect, test } from 'vitest';
import { within } from '../../src/platform/lifecycle.ts';

const never = new Promise<never>(() => {});

test('work in time gives what it gives, or fails as it fails', async () => {
  const { signal } = new AbortController();
  expect(await within(60_000, Promise.resolve('done'), { signal })).toBe('done');
  await expect(within(60_000, Promise.reject(new Error('broken')), { signal })).rejects.toThrow('broken');
  expect(getEventListeners(signal, 'abort')).toEqual([]);
});

test('who waits longer is told so, in words of their own where they have some', async () => {
  await expect(within(1, never)).rejects.toThrow('no answer within 1 ms');
  await expect(within(1, never, { late: () => new RangeError('late') })).rejects.toThrow(RangeError);
});

test('who leaves waits no longer, whether before or meanwhile', async () => {
  const leaving = new AbortController();
  const waiting = within(60_000, never, { signal: leaving.signal });
  leaving.abort(new Error('gone'));
  await expect(waiting).rejects.toThrow('gone');
  await expect(within(60_000, never, { signal: leaving.signal })).rejects.toThrow('gone');
});
