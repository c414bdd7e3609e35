import { afterEach, describe, expect, test, vi } from 'vitest';
import { createYielding, type Heartbeat, type Yielding } from '../../src/import/yielding.ts';

const LANES = 2;

const live: Heartbeat = { name: 'web', silentSeconds: 19, objectsPerSecond: 1 };

const made: Yielding[] = [];
afterEach(async () => {
  vi.useRealTimers();
  await Promise.all(made.splice(0).map((yielding) => yielding.stop()));
});

/** Creates an import whose processes and lanes the test controls. */
function scene({ highWaterMark = 100_000 } = {}) {
  const input = { heartbeats: [] as Heartbeat[], waiting: 0, waits: 0 };
  // The test controls the polls; everything else runs normally.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const yielding = createYielding({
    heartbeats: async () => input.heartbeats,
    waiting: () => input.waiting,
    lanes: LANES,
    highWaterMark,
    onWait: () => {
      input.waits += 1;
    },
  });
  made.push(yielding);
  /** Sets the heartbeats that the next poll returns. */
  async function check(...heartbeats: Heartbeat[]): Promise<void> {
    input.heartbeats = heartbeats;
    await turn();
    await vi.advanceTimersByTimeAsync(1000);
    await turn();
  }
  return { input, yielding, check };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

/** Checks whether the next chunk still has to wait after all due work; then stops the wait. */
async function waits(yielding: Yielding): Promise<boolean> {
  const leaving = new AbortController();
  let isWaiting = true;
  const waited = yielding.wait(leaving.signal).then(() => {
    isWaiting = false;
  });
  await turn();
  const answer = isWaiting;
  leaving.abort();
  await waited;
  return answer;
}

/** Returns the smallest number of jobs in all lanes at which the import waits. */
async function mark({
  input,
  yielding,
}: Pick<ReturnType<typeof scene>, 'input' | 'yielding'>): Promise<number> {
  for (input.waiting = 0; input.waiting < 1000; input.waiting++)
    if (await waits(yielding)) return input.waiting;
  throw new Error('it never waits');
}

describe('an import', () => {
  test.each<[string, Heartbeat[], number]>([
    ['a web process takes objects', [live], 250],
    [
      'one of many processes takes objects',
      [{ ...live, objectsPerSecond: 0 }, { ...live, name: 'worker' }, live],
      250,
    ],
    ['no process is there', [], 2000],
    ['web processes are idle', [{ ...live, objectsPerSecond: 0 }], 2000],
    [
      'only other processes have work',
      [
        { ...live, name: 'worker' },
        { ...live, name: 'sync' },
      ],
      2000,
    ],
    ['the web process that took objects is gone', [{ ...live, silentSeconds: 20 }], 2000],
  ])('while %s, enqueues chunks of its size', async (_while, heartbeats, rows) => {
    const { yielding, check } = scene();
    await check(...heartbeats);
    expect(yielding.chunkRows()).toBe(rows);
  });

  test('yields at first, and then as heartbeats report live requests', async () => {
    const { yielding, check } = scene();
    expect(yielding.chunkRows()).toBe(250);
    const rows = [];
    for (const heartbeats of [[], [live], []]) {
      await check(...heartbeats);
      rows.push(yielding.chunkRows());
    }
    expect(rows).toEqual([2000, 250, 2000]);
  });

  test('keeps three jobs waiting per lane during live requests, and forty otherwise', async () => {
    const on = scene();
    await on.check(live);
    expect(await mark(on)).toBe(3 * LANES);
    await on.check();
    expect(await mark(on)).toBe(40 * LANES);
  });

  test("stays below half of the queue's limit", async () => {
    const on = scene({ highWaterMark: 20 });
    await on.check();
    expect(await mark(on)).toBe(10);
  });

  test('continues when the lanes have room again', async () => {
    const { input, yielding, check } = scene();
    await check();
    input.waiting = 40 * LANES;
    const waited = yielding.wait(new AbortController().signal);
    await turn();
    input.waiting -= 1;
    await waited;
    expect(input.waits).toBe(0);
  });

  test('rests after its work during live requests, and otherwise not', async () => {
    const { yielding, check } = scene();
    await check(live);
    expect(await waits(yielding)).toBe(false);
    yielding.worked(60_000);
    expect(await waits(yielding)).toBe(true);
    await check();
    yielding.worked(60_000);
    expect(await waits(yielding)).toBe(false);
  });
});
