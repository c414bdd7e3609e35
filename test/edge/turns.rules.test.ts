import { expect, test } from 'vitest';
import { createTurns } from '../../src/edge/turns.ts';

const nextTurnOfTheLoop = () => new Promise(setImmediate);

/** A clock that advances by the duration of the work. Unless `alone`, another workspace has just sent something. */
async function scene({ alone = false } = {}) {
  let now = 0;
  const turns = createTurns(() => now);
  if (!alone) {
    await turns.turn('other');
    await turns.turn('flood');
    await nextTurnOfTheLoop();
  }
  const done: string[] = [];
  const work = async (owner: string, milliseconds: number) => {
    await turns.turn(owner);
    await undefined;
    now += milliseconds;
    done.push(owner);
  };
  return { turns, done, work };
}

test('while a burst waits, a workspace that arrives later is served in the next turn', async () => {
  const { work, done } = await scene();
  const noisy = Array.from({ length: 50 }, () => work('flood', 1));
  await nextTurnOfTheLoop();
  const before = done.length;
  expect(before).toBeLessThan(15);
  await work('quiet', 1);
  expect(done.indexOf('quiet') - before).toBeLessThanOrEqual(4);
  await Promise.all(noisy);
  expect(done).toHaveLength(51);
});

test('requests of one workspace continue in the order of their arrival', async () => {
  const { turns } = await scene();
  const order: number[] = [];
  await Promise.all(
    Array.from({ length: 30 }, async (_, number) => {
      await turns.turn('one');
      order.push(number);
    }),
  );
  expect(order).toEqual(Array.from({ length: 30 }, (_, number) => number));
});

test('requests do not wait as long as there is little work', async () => {
  const { turns } = await scene();
  for (let number = 0; number < 3; number++) {
    expect(turns.turn('one')).toBeUndefined();
    await nextTurnOfTheLoop();
  }
});

test('after much work, requests do not wait again', async () => {
  const { turns, work } = await scene();
  await Promise.all(Array.from({ length: 20 }, () => work('flood', 1)));
  await nextTurnOfTheLoop();
  await nextTurnOfTheLoop();
  expect(turns.turn('one')).toBeUndefined();
});

test('a workspace that sends alone does not wait for its turn', async () => {
  const { turns, work } = await scene({ alone: true });
  const all = Array.from({ length: 50 }, () => work('one', 1));
  expect(turns.turn('one')).toBeUndefined();
  await Promise.all(all);
});
