import { expect, test } from 'vitest';
import { ByteBudget } from '../../src/platform/byte-budget.ts';

const budget = () => new ByteBudget({ maxBytes: 100, maxPerOwner: 60, maxAnonymous: 20 });

test('an owner reserves up to its share, and all owners up to the limit', () => {
  const bytes = budget();
  expect(bytes.reserve(60, 'a')).toBeDefined();
  expect(bytes.reserve(1, 'a')).toBeUndefined();
  expect(bytes.reserve(21)).toBeDefined();
  expect(bytes.reserve(1)).toBeUndefined();
  expect(bytes.reserve(20, 'b')).toBeDefined();
  expect(bytes.reserve(1, 'c')).toBeUndefined();
  expect(bytes.held).toBe(100);
});

test('a reservation larger than the share of its owner counts as the share', () => {
  const bytes = budget();
  const whole = bytes.reserve(1000, 'a')!;
  expect(bytes.held).toBe(60);
  whole.grow(-1000);
  expect(bytes.held).toBe(0);
});

test('a reservation grows while there is room, and returns each byte once', () => {
  const bytes = budget();
  const one = bytes.reserve(10, 'a')!;
  expect(one.grow(50)).toBe(true);
  expect(one.grow(1)).toBe(false);
  one.release();
  one.release();
  expect(one.grow(-5)).toBe(true);
  expect([bytes.held, bytes.heldBy('a')]).toEqual([0, 0]);
});

test('bytes that are in memory already count above the limit', () => {
  const bytes = budget();
  const { release } = bytes.count(500, 'a');
  expect([bytes.held, bytes.hasRoom(0, 'b')]).toEqual([500, false]);
  release();
  expect(bytes.hasRoom(0, 'b')).toBe(true);
});
