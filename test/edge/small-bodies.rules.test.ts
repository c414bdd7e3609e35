import { expect, test } from 'vitest';
import { ByteBudget } from '../../src/platform/byte-budget.ts';

/** Bodies by name, and the names of the dropped bodies, in order. */
function scene(maxBytes: number) {
  const bodies = new ByteBudget({ maxBytes });
  const shed: string[] = [];
  return { held: () => bodies.held, shed, begin: (name: string) => bodies.receive(() => shed.push(name)) };
}

test('G5: above the bound, the oldest body without a key is dropped first, complete or not', () => {
  const { begin, shed, held } = scene(100);
  const authenticated = begin('known');
  authenticated.know();
  authenticated.grow(40);
  const whole = begin('a stranger, whole');
  whole.grow(30);
  whole.complete();
  begin('another stranger').grow(30);
  expect([shed, held()]).toEqual([[], 100]);
  begin('a third').grow(10);
  expect([shed, held()]).toEqual([['a stranger, whole'], 80]);
});

test('G5: then the oldest body that is still arriving is dropped, and no complete body', () => {
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
  // If all other bodies are complete, the new one is dropped.
  bodies[2]!.complete();
  last.complete();
  begin('too late').grow(1);
  expect([shed, held()]).toEqual([['second', 'too late'], 100]);
});

test('released bytes are free for other bodies, and are no longer counted', () => {
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
