import { expect, test } from 'vitest';
import { createTurns } from '../../src/edge/turns.ts';

const nextTurnOfTheLoop = () => new Promise(setImmediate);

/** A clock that goes on by what the work takes. Another workspace has sent something a moment ago, unless nobody has. */
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

test('with a flood waiting, a workspace that comes later is in the next turn', async () => {
  const { work, done } = await scene();
  const flood = Array.from({ length: 50 }, () => work('flood', 1));
  await nextTurnOfTheLoop();
  const before = done.length;
  expect(before).toBeLessThan(15);
  await work('quiet', 1);
  expect(done.indexOf('quiet') - before).toBeLessThanOrEqual(4);
  await Promise.all(flood);
  expect(done).toHaveLength(51);
});

test('requests of one workspace go on in the order in which they came', async () => {
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

test('nobody waits as long as there is little to do', async () => {
  const { turns } = await scene();
  for (let number = 0; number < 3; number++) {
    expect(turns.turn('one')).toBeUndefined();
    await nextTurnOfTheLoop();
  }
});

test('after much work nobody waits again', async () => {
  const { turns, work } = await scene();
  await Promise.all(Array.from({ length: 20 }, () => work('flood', 1)));
  await nextTurnOfTheLoop();
  await nextTurnOfTheLoop();
  expect(turns.turn('one')).toBeUndefined();
});

test('a workspace that sends alone waits for nobody', async () => {
  const { turns, work } = await scene({ alone: true });
  const all = Array.from({ length: 50 }, () => work('one', 1));
  expect(turns.turn('one')).toBeUndefined();
  await Promise.all(all);
});
