import { expect, test } from 'vitest';
import { table } from '../../src/admin/output.ts';

const ID = '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f';

test('a table has at most 100 columns; its longest text is cut with an ellipsis', () => {
  const lines = table([
    { key_id: ID, reason: 'x'.repeat(300), failed_at: '2026-11-26T19:52:07.123Z', count: 7 },
  ])
    .trimEnd()
    .split('\n');
  expect(Math.max(...lines.map((line) => line.length))).toBe(100);
  expect(lines[1]).toMatch(new RegExp(`^${ID}  x+…  2026-11-26 19:52Z +7$`));
});

test('a table cuts ids only when texts and times are at their minimum', () => {
  const row = Object.fromEntries(['one', 'two', 'three'].map((name) => [`${name}_id`, ID]));
  const [, line] = table([
    { ...row, name: 'a name of some length', created_at: '2026-11-26T19:52:07Z' },
  ]).split('\n');
  expect(line).toHaveLength(100);
  expect(line).toMatch(/ {2}a nam… {2}2026-…$/);
});

test('a table that fits is not cut', () => {
  expect(table([{ name: 'shop', users: 12 }])).toBe('name  users\nshop     12\n');
});
