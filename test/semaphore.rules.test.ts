import { expect, test } from 'vitest';
import { createSemaphore, type SemaphoreSettings } from '../src/platform/concurrency.ts';

/**
 * Creates a semaphore for work that the test ends. `begun` lists the owners in the order in which their work
 * began.
 */
function scene(settings: Partial<SemaphoreSettings>) {
  const semaphore = createSemaphore({
    ...{ maxRunning: 1, maxRunningPerOwner: 9, maxWaiting: 99, maxWaitingPerOwner: 99, patience: 60_000 },
    refusal: (reason) => new Error(reason),
    ...settings,
  });
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  return {
    begun,
    use: (owner: string) =>
      semaphore.use(owner, () => {
        begun.push(owner);
        return new Promise<void>((resolve) => ends.push(resolve));
      }),
    /** Ends the work that has been running longest. */
    async end() {
      ends.shift()!();
      await new Promise(setImmediate);
    },
  };
}

test('owners take turns, however many requests each of them makes', async () => {
  const { use, begun, end } = scene({});
  for (const owner of ['a', 'a', 'a', 'a', 'b', 'c', 'b']) void use(owner);
  for (let turn = 0; turn < 6; turn++) await end();
  expect(begun).toEqual(['a', 'b', 'c', 'a', 'b', 'a', 'a']);
});

test('one owner is limited to its share, also while the rest is unused', async () => {
  const { use, begun, end } = scene({ maxRunning: 3, maxRunningPerOwner: 2 });
  for (const owner of ['a', 'a', 'a']) void use(owner);
  expect(begun).toEqual(['a', 'a']);
  void use('b');
  expect(begun).toEqual(['a', 'a', 'b']);
  await end();
  expect(begun).toEqual(['a', 'a', 'b', 'a']);
});

test('owners with long work leave one slot to the others', async () => {
  const { use, begun, end } = scene({ maxRunning: 2, isHeavy: (owner) => owner !== 'light' });
  for (const owner of ['slow', 'slower', 'slow']) void use(owner);
  expect(begun).toEqual(['slow']);
  void use('light');
  expect(begun).toEqual(['slow', 'light']);
  await end();
  expect(begun).toEqual(['slow', 'light', 'slower']);
});

test('a noisy owner fills only its own share of the waiting list', async () => {
  const { use, begun, end } = scene({ maxWaiting: 4, maxWaitingPerOwner: 2 });
  for (let index = 0; index < 3; index++) void use('a');
  await expect(use('a')).rejects.toThrow('too many wait');
  void use('b');
  await end();
  expect(begun).toEqual(['a', 'b']);
});

test('requests wait longer than the patience as long as they are excused', async () => {
  let excused = true;
  const { use } = scene({ patience: 10, isExcused: () => excused });
  void use('a');
  let refused = false;
  const waiting = use('b').catch(() => {
    refused = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(refused).toBe(false);
  excused = false;
  await waiting;
  expect(refused).toBe(true);
});
