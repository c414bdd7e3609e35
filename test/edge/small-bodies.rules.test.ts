import { expect, test } from 'vitest';
import { createSmallBodies } from '../../src/edge/reading.ts';

/** Bodies by name, and the names of those that were shed, in that order. */
function scene(mostBytes: number) {
  const bodies = createSmallBodies(mostBytes);
  const shed: string[] = [];
  return { ...bodies, shed, begin: (name: string) => bodies.count(() => shed.push(name)) };
}

test('G5: past the bound the oldest without a key goes first, whether it is whole or not', () => {
  const { begin, shed, held } = scene(100);
  const known = begin('known');
  known.know();
  known.grow(40);
  const whole = begin('a stranger, whole');
  whole.grow(30);
  whole.complete();
  begin('another stranger').grow(30);
  expect([shed, held()]).toEqual([[], 100]);
  begin('a third').grow(10);
  expect([shed, held()]).toEqual([['a stranger, whole'], 80]);
});

test('G5: then the oldest that is still on its way, and none that has come', () => {
  const { begin, shed, held } = scene(100);
  const names = ['first', 'second', 'third'];
  const bodies = names.map((name) => {
    const body = begin(name);
    body.know();
    body.grow(30);
    return body;
  });
  bodies[0]!.complete();
  const last = begin('last');
  last.know();
  last.grow(40);
  expect([shed, held()]).toEqual([['second'], 100]);
  // Where all others have come, whoever comes now is the one.
  bodies[2]!.complete();
  last.complete();
  begin('too late').grow(1);
  expect([shed, held()]).toEqual([['second', 'too late'], 100]);
});

test('what is given back is room for others, and counts no more', () => {
  const { begin, shed, held } = scene(100);
  const one = begin('one');
  one.grow(80);
  one.grow(-30);
  expect(held()).toBe(50);
  one.release();
  one.release();
  one.grow(1000);
  begin('two').grow(100);
  expect([shed, held()]).toEqual([[], 100]);
});
