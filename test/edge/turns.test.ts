import { expect, test } from 'vitest';
import { createTurns } from '../../src/edge/turns.ts';

/** Work that ends when it is told to. */
function held() {
  let end = () => {};
  const done = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { work: () => done, end };
}

const refused = { status: 503, headers: { 'Retry-After': '1' } };

test('as many work at a time as may, the others in the order in which they came', async () => {
  const inTurn = createTurns({ atOnce: 2, mostWaiting: 10, patience: 60_000 });
  const begun: number[] = [];
  const all = [0, 1, 2, 3, 4].map(() => held());
  const ends = all.map(({ work }, one) =>
    inTurn(() => {
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

test('work that fails gives its turn on, and its error to its caller', async () => {
  const inTurn = createTurns({ atOnce: 1, mostWaiting: 10, patience: 60_000 });
  const failed = inTurn(() => Promise.reject(new Error('no')));
  const behind = inTurn(async () => 'done');
  await expect(failed).rejects.toThrow('no');
  expect(await behind).toBe('done');
  expect(await inTurn(async () => 'later')).toBe('later');
});

test('whoever comes when too many wait is refused at once with 503, and the waiting are not', async () => {
  const inTurn = createTurns({ atOnce: 1, mostWaiting: 1, patience: 60_000 });
  const first = held();
  const working = inTurn(first.work);
  const waiting = inTurn(async () => 'done');
  await expect(inTurn(async () => 'never')).rejects.toMatchObject(refused);
  first.end();
  await working;
  expect(await waiting).toBe('done');
});

test('whoever has waited too long is refused with 503, is not begun, and leaves a place to wait', async () => {
  const inTurn = createTurns({ atOnce: 1, mostWaiting: 1, patience: 20 });
  const first = held();
  const working = inTurn(first.work);
  let begun = false;
  const late = inTurn(async () => {
    begun = true;
  });
  await expect(late).rejects.toMatchObject(refused);
  const next = inTurn(async () => 'done');
  first.end();
  await working;
  expect(await next).toBe('done');
  expect(begun).toBe(false);
});
