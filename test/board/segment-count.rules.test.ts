import { expect, test } from 'vitest';
import { nextLimit } from '../../src/board/pages/segment-count.ts';

test.each([
  { read: 100, elapsed: 1, left: 999, limit: 5000 },
  { read: 100, elapsed: 400, left: 600, limit: 150 },
  { read: 1000, elapsed: 900, left: 100, limit: 111 },
  { read: 100, elapsed: 1500, left: 0, limit: 20 },
])(
  'after $read users in $elapsed ms, with $left ms left, a statement of a count reads $limit users',
  (one) => {
    expect(nextLimit(one.read, one.elapsed, one.left)).toBe(one.limit);
  },
);
