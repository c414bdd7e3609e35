import { beforeEach, describe, expect, test, vi } from 'vitest';
import type { Log } from '../../src/platform/log.ts';
import { createStandstill } from '../../src/queue/oldest.ts';

const log = { error: vi.fn(), info: vi.fn() };
beforeEach(() => vi.clearAllMocks());

/** A fleet that may count as standing still from the second check on. */
function scene(workers: boolean) {
  const watched = createStandstill({ afterMs: 0, hasWorkers: async () => workers }, log as unknown as Log);
  /** Checks twice with the same oldest envelopes. */
  const checkTwice = async (heads: string[], active = 0) => {
    for (let round = 0; round < 2; round++) await watched.check(heads, async () => active);
    return watched.seconds() > 0;
  };
  return { ...watched, checkTwice };
}

describe('a fleet stands still', () => {
  test.each([
    ['jobs wait and no worker is running', { workers: false, active: 0 }, /no worker is running/],
    [
      'the only active jobs belong to a worker that is gone',
      { workers: false, active: 1 },
      /no worker is running/,
    ],
    [
      'workers are running but take no jobs',
      { workers: true, active: 0 },
      /workers are running but take no jobs/,
    ],
  ])('when %s', async (_, { workers, active }, reason) => {
    const { checkTwice } = scene(workers);
    expect(await checkTwice(['a'], active)).toBe(true);
    expect(log.error).toHaveBeenCalledExactlyOnceWith(
      expect.objectContaining({ workers }),
      expect.stringMatching(reason),
    );
  });
});

describe('a fleet moves', () => {
  test.each([
    ['while no job waits', { workers: false, heads: [], active: 0 }],
    ['while a worker has an active job, however long it takes', { workers: true, heads: ['a'], active: 1 }],
  ])('%s', async (_, { workers, heads, active }) => {
    const { checkTwice } = scene(workers);
    expect(await checkTwice(heads, active)).toBe(false);
    expect(log.error).not.toHaveBeenCalled();
  });

  test('again when the oldest job of any lane changes, and logs it', async () => {
    const { checkTwice, check, seconds } = scene(false);
    await checkTwice(['a', 'b']);
    await check(['a', 'c'], async () => 0);
    expect(seconds()).toBe(0);
    expect(log.info).toHaveBeenCalledExactlyOnceWith(expect.anything(), 'workers took jobs again');
  });

  test('by assumption, while the queue does not answer', async () => {
    const { checkTwice, forget, seconds } = scene(false);
    await checkTwice(['a']);
    forget();
    expect(seconds()).toBe(0);
  });
});
