import { expect, test } from 'vitest';
import { nextLimit } from '../../src/board/pages/segment-form.ts';

test.each([
  [100, 1, 1000],
  [100, 400, 150],
  [1000, 900, 111],
  [100, 1500, 20],
])('after %d users in %d ms, the next statement of a count reads %d users', (read, elapsed, limit) => {
  expect(nextLimit(read, elapsed)).toBe(limit);
});
