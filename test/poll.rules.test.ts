import { expect, onTestFinished, test, vi } from 'vitest';
import { backOff, createBackOff, poll, rest, until } from '../src/platform/poll.ts';
import { waitUntil } from './setup/wait-until.ts';

test('a poller makes one poll at a time, however long each takes', async () => {
  let [runs, atOnce, most] = [0, 0, 0];
  const poller = poll(2, async () => {
    most = Math.max(most, ++atOnce);
    await rest(10);
    runs++;
    atOnce--;
  });
  await waitUntil(() => runs >= 3, { what: 'three looks' });
  const [one, other] = [poller.now(), poller.now()];
  await Promise.all([one, other]);
  await poller.stop();
  expect({ most, atOnce }).toEqual({ most: 1, atOnce: 0 });
});

test.each([
  [
    'at once',
    () => {
      throw new Error('away');
    },
  ],
  ['later', () => Promise.reject(new Error('away'))],
])('a poller reports an error that is thrown %s, and polls again', async (_, run) => {
  const heard: unknown[] = [];
  const poller = poll(2, run, (error) => heard.push(error));
  await waitUntil(() => heard.length >= 3, { what: 'three failed looks' });
  await poller.stop();
  expect(heard).toContainEqual(new Error('away'));
});

test('a stopped poller waits for the running poll, and starts no other', async () => {
  let begun = 0;
  let ended = 0;
  const poller = poll(2, async () => {
    begun++;
    await rest(20);
    ended++;
  });
  await waitUntil(() => begun > 0, { what: 'a look' });
  await poller.stop();
  const before = begun;
  expect(ended).toBe(before);
  await rest(20);
  expect(begun).toBe(before);
});

test('a back-off waits longer each time, up to its maximum', () => {
  const pause = backOff(5, 50);
  expect(Array.from({ length: 6 }, pause)).toEqual([5, 10, 20, 40, 50, 50]);
  const slower = backOff(2, 5, 1.5);
  expect(Array.from({ length: 4 }, slower)).toEqual([2, 3, 4.5, 5]);
});

test('a rest ends when its signal is aborted, and returns at once if it already was', async () => {
  const leaving = new AbortController();
  const resting = rest(60_000, leaving.signal);
  leaving.abort();
  await resting;
  await rest(60_000, leaving.signal);
});

test('until polls until the condition holds, and reports each failed poll', async () => {
  let runs = 0;
  const inVain: number[] = [];
  const seen = await until(() => ++runs, {
    every: backOff(1, 2),
    isSo: (count) => count === 4,
    inVain: (count) => inVain.push(count),
  });
  expect({ seen, inVain }).toEqual({ seen: 4, inVain: [1, 2, 3] });
});

test('until polls once after the deadline, and returns the last value', async () => {
  let runs = 0;
  const inVain: number[] = [];
  const isNever = () => false;
  const seen = await until(() => ++runs, {
    ...{ every: 1, deadline: Date.now() - 1, isSo: isNever },
    inVain: (count) => inVain.push(count),
  });
  expect({ seen, inVain }).toEqual({ seen: 1, inVain: [] });
  expect(await until(() => 0, { every: 1, deadline: Date.now() + 20 })).toBe(0);
});

test('until polls a last time when its signal is aborted, and returns', async () => {
  const leaving = new AbortController();
  let runs = 0;
  const waiting = until(() => ++runs > 9, { every: 60_000, leaving: leaving.signal });
  await waitUntil(() => runs === 1, { what: 'the first look' });
  leaving.abort();
  expect(await waiting).toBe(false);
  expect(runs).toBe(2);
});

test('until rejects with the error of a failed poll', async () => {
  const run = () => Promise.reject(new Error('away'));
  await expect(until(run, { every: 1 })).rejects.toThrow('away');
});

test.each([
  [400, 0],
  [1000, 4000],
  [30_000, 5000],
])('after an operation of %i ms, the next one waits for %i ms', async (took, pause) => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const slow = createBackOff(500);
  const timed = slow.timed(new Promise((resolve) => setTimeout(resolve, took)));
  await vi.advanceTimersByTimeAsync(took);
  await timed;
  vi.advanceTimersByTime(Math.max(0, pause - 1));
  expect(slow.isWaiting()).toBe(pause > 0);
  vi.advanceTimersByTime(1);
  expect(slow.isWaiting()).toBe(false);
});
