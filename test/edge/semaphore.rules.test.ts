import { expect, test } from 'vitest';
import { createRequestSemaphore } from '../../src/edge/load-shedding.ts';

/** Work that ends when it is told to. */
function held() {
  let end = () => {};
  const done = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { work: () => done, end };
}

/** A semaphore of which one owner may have all places. */
const semaphoreOf = (settings: { atOnce: number; mostWaiting: number; patience: number }) =>
  createRequestSemaphore({
    ...settings,
    atOnceOfOne: settings.atOnce,
    mostWaitingOfOne: settings.mostWaiting,
  });

const refused = { status: 503, headers: { 'Retry-After': '1' } };

test('as many work at a time as may, the others in the order in which they came', async () => {
  const semaphore = semaphoreOf({ atOnce: 2, mostWaiting: 10, patience: 60_000 });
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

test('work that fails gives its place on, and its error to its caller', async () => {
  const semaphore = semaphoreOf({ atOnce: 1, mostWaiting: 10, patience: 60_000 });
  const failed = semaphore.use('one', () => Promise.reject(new Error('no')));
  const behind = semaphore.use('one', async () => 'done');
  await expect(failed).rejects.toThrow('no');
  expect(await behind).toBe('done');
  expect(await semaphore.use('one', async () => 'later')).toBe('later');
});

test('whoever comes when too many wait is refused at once with 503, and the waiting are not', async () => {
  const semaphore = semaphoreOf({ atOnce: 1, mostWaiting: 1, patience: 60_000 });
  const first = held();
  const working = semaphore.use('one', first.work);
  const waiting = semaphore.use('one', async () => 'done');
  await expect(semaphore.use('one', async () => 'never')).rejects.toMatchObject(refused);
  first.end();
  await working;
  expect(await waiting).toBe('done');
});

test('whoever has waited too long is refused with 503, is not begun, and leaves a place to wait', async () => {
  const semaphore = semaphoreOf({ atOnce: 1, mostWaiting: 1, patience: 20 });
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
