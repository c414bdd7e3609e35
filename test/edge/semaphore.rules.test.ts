import { expect, test } from 'vitest';
import { createRequestSemaphore } from '../../src/edge/load-shedding.ts';

/** Work that ends when the test calls `end`. */
function held() {
  let end = () => {};
  const done = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { work: () => done, end };
}

/** Creates a semaphore that one owner may use completely. */
const semaphoreOf = (settings: { maxRunning: number; maxWaiting: number; patience: number }) =>
  createRequestSemaphore({
    ...settings,
    maxRunningPerOwner: settings.maxRunning,
    maxWaitingPerOwner: settings.maxWaiting,
  });

const refused = { status: 503, headers: { 'Retry-After': '1' } };

test('as much work runs at a time as allowed, and the rest in the order of arrival', async () => {
  const semaphore = semaphoreOf({ maxRunning: 2, maxWaiting: 10, patience: 60_000 });
  const begun: number[] = [];
  const all = [0, 1, 2, 3, 4].map(() => held());
  const ends = all.map(({ work }, one) =>
    semaphore.use('one', () => {
      begun.push(one);
      return work();
    }),
  );
  expect(begun).toEqual([0, 1]);
  all[1]!.end();
  await ends[1];
  expect(begun).toEqual([0, 1, 2]);
  for (const { end } of all) end();
  await Promise.all(ends);
  expect(begun).toEqual([0, 1, 2, 3, 4]);
});

test('failed work frees its slot, and its caller gets the error', async () => {
  const semaphore = semaphoreOf({ maxRunning: 1, maxWaiting: 10, patience: 60_000 });
  const failed = semaphore.use('one', () => Promise.reject(new Error('no')));
  const queued = semaphore.use('one', async () => 'done');
  await expect(failed).rejects.toThrow('no');
  expect(await queued).toBe('done');
  expect(await semaphore.use('one', async () => 'later')).toBe('later');
});

test('work above the waiting limit is refused at once with 503, and waiting work is not', async () => {
  const semaphore = semaphoreOf({ maxRunning: 1, maxWaiting: 1, patience: 60_000 });
  const first = held();
  const working = semaphore.use('one', first.work);
  const waiting = semaphore.use('one', async () => 'done');
  await expect(semaphore.use('one', async () => 'never')).rejects.toMatchObject(refused);
  first.end();
  await working;
  expect(await waiting).toBe('done');
});

test('work that waited too long is refused with 503, never starts, and frees its position', async () => {
  const semaphore = semaphoreOf({ maxRunning: 1, maxWaiting: 1, patience: 20 });
  const first = held();
  const working = semaphore.use('one', first.work);
  let begun = false;
  const late = semaphore.use('one', async () => {
    begun = true;
  });
  await expect(late).rejects.toMatchObject(refused);
  const next = semaphore.use('one', async () => 'done');
  first.end();
  await working;
  expect(await next).toBe('done');
  expect(begun).toBe(false);
});
