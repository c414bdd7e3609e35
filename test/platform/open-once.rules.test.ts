import { expect, test } from 'vitest';
import { openOnce } from '../../src/platform/concurrency.ts';

test('a resource that failed to open is opened again by the next call, and then shared', async () => {
  let calls = 0;
  const open = openOnce(async () => {
    calls++;
    if (calls === 1) throw new Error('away');
    return calls;
  });
  const [first, second] = await Promise.allSettled([open(), open()]);
  expect([first.status, second.status, calls]).toEqual(['rejected', 'rejected', 1]);
  expect([await open(), await open(), calls]).toEqual([2, 2, 2]);
});
