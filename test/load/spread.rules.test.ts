import { expect, test } from 'vitest';
import { makeMessages, userPicker } from '../../tools/load/bodies.ts';
import { createRandom } from '../../tools/load/random.ts';

const OBJECTS = 20_000;

/** Returns the share of objects that belong to the first tenth of the users. */
function ofFirstTenth(spread: Parameters<typeof userPicker>[0]['spread']): number {
  const pick = userPicker({ users: 1000, spread }, createRandom(1));
  const users = Array.from({ length: OBJECTS }, pick);
  expect(users.every((user) => user >= 0 && user < 1000)).toBe(true);
  return users.filter((user) => user < 100).length / OBJECTS;
}

test('a tenth of the users has nine tenths of the objects, or all are equal, or few are frequent', () => {
  expect(ofFirstTenth('tenth')).toBeCloseTo(0.9, 1);
  expect(ofFirstTenth('evenly')).toBeCloseTo(0.1, 1);
  expect(ofFirstTenth('few-often')).toBeCloseTo(Math.sqrt(0.1), 1);
});

test('requests have a number of objects in the given range, and as many event names as asked', () => {
  const options = { objects: [1, 5], badShare: 0, kinds: ['events'], eventNames: 10 } as const;
  const messages = makeMessages(300, '', options, createRandom(1), Date.now());
  const bodies = messages.map(({ bytes }) => JSON.parse(bytes.toString().split('\r\n\r\n')[1]!));
  const sizes = new Set(bodies.map(({ events }) => events.length));
  expect([...sizes].sort()).toEqual([1, 2, 3, 4, 5]);
  const names = new Set(bodies.flatMap(({ events }) => events.map(({ name }: { name: string }) => name)));
  expect([...names].sort()).toEqual(Array.from({ length: 10 }, (_, name) => `event_${name}`));
});
