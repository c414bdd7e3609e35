import { expect, test } from 'vitest';
import { createTurns } from '../../src/edge/turns.ts';

test('no more run at a time than may, in the order in which they came, also when some fail', async () => {
  const inTurn = createTurns(3);
  let running = 0;
  let most = 0;
  const begun: number[] = [];
  const results = await Promise.allSettled(
    Array.from({ length: 20 }, (_, number) =>
      inTurn(async () => {
        begun.push(number);
        most = Math.max(most, ++running);
        await new Promise(setImmediate);
        running--;
        if (number % 4 === 0) throw new Error('failed');
        return number;
      }),
    ),
  );
  expect(most).toBe(3);
  expect(begun).toEqual(Array.from({ length: 20 }, (_, number) => number));
  expect(results.filter(({ status }) => status === 'rejected')).toHaveLength(5);
});
