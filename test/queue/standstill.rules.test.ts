import { beforeEach, describe, expect, test, vi } from 'vitest';
import type { Log } from '../../src/platform/log.ts';
import { createStandstill } from '../../src/queue/oldest.ts';

const log = { error: vi.fn(), info: vi.fn() };
beforeEach(() => vi.clearAllMocks());

/** Of a fleet that may stand still from the second look on. */
function scene(workers: boolean) {
  const watched = createStandstill({ afterMs: 0, hasWorkers: async () => workers }, log as unknown as Log);
  /** Looks twice, as the same heads stand there. */
  const lookTwice = async (heads: string[], active = 0) => {
    for (let look = 0; look < 2; look++) await watched.look(heads, async () => active);
    return watched.seconds() > 0;
  };
  return { ...watched, lookTwice };
}

describe('a fleet stands still', () => {
  test.each([
    ['jobs wait and no worker is running', { workers: false, active: 0 }, /no worker is running/],
    [
      'what is in work is in the hands of a worker that is gone',
      { workers: false, active: 1 },
      /no worker is running/,
    ],
    [
      'workers are there and take nothing',
      { workers: true, active: 0 },
      /workers are running but take no jobs/,
    ],
  ])('when %s', async (_, { workers, active }, reason) => {
    const { lookTwice } = scene(workers);
    expect(await lookTwice(['a'], active)).toBe(true);
    expect(log.error).toHaveBeenCalledExactlyOnceWith(
      expect.objectContaining({ workers }),
      expect.stringMatching(reason),
    );
  });
});

describe('a fleet moves', () => {
  test.each([
    ['while nothing waits', { workers: false, heads: [], active: 0 }],
    [
      'while a worker has something in work, however long that takes',
      { workers: true, heads: ['a'], active: 1 },
    ],
  ])('%s', async (_, { workers, heads, active }) => {
    const { lookTwice } = scene(workers);
    expect(await lookTwice(heads, active)).toBe(false);
    expect(log.error).not.toHaveBeenCalled();
  });

  test('again when another job is the head of any lane, and says so', async () => {
    const { lookTwice, look, seconds } = scene(false);
    await lookTwice(['a', 'b']);
    await look(['a', 'c'], async () => 0);
    expect(seconds()).toBe(0);
    expect(log.info).toHaveBeenCalledExactlyOnceWith(expect.anything(), 'workers took jobs again');
  });

  test('for all that is known, while the queue does not answer', async () => {
    const { lookTwice, forget, seconds } = scene(false);
    await lookTwice(['a']);
    forget();
    expect(seconds()).toBe(0);
  });
});
