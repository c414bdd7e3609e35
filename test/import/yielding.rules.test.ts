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
  const said = { heartbeats: [] as Heartbeat[], waiting: 0, waits: 0 };
  // The test controls the polls; everything else runs normally.
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const yielding = createYielding({
    heartbeats: async () => said.heartbeats,
    waiting: () => said.waiting,
    lanes: LANES,
    highWaterMark,
    onWait: () => {
      said.waits += 1;
    },
  });
  made.push(yielding);
  /** Sets the heartbeats that the next poll returns. */
  async function look(...heartbeats: Heartbeat[]): Promise<void> {
    said.heartbeats = heartbeats;
    await turn();
    await vi.advanceTimersByTimeAsync(1000);
    await turn();
  }
  return { said, yielding, look };
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
  said,
  yielding,
}: Pick<ReturnType<typeof scene>, 'said' | 'yielding'>): Promise<number> {
  for (said.waiting = 0; said.waiting < 1000; said.waiting++) if (await waits(yielding)) return said.waiting;
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
    const { yielding, look } = scene();
    await look(...heartbeats);
    expect(yielding.chunkRows()).toBe(rows);
  });

  test('yields at first, and then as heartbeats report live requests', async () => {
    const { yielding, look } = scene();
    expect(yielding.chunkRows()).toBe(250);
    const rows = [];
    for (const heartbeats of [[], [live], []]) {
      await look(...heartbeats);
      rows.push(yielding.chunkRows());
    }
    expect(rows).toEqual([2000, 250, 2000]);
  });

  test('keeps three jobs waiting per lane during live requests, and forty otherwise', async () => {
    const on = scene();
    await on.look(live);
    expect(await mark(on)).toBe(3 * LANES);
    await on.look();
    expect(await mark(on)).toBe(40 * LANES);
  });

  test("stays below half of the queue's limit", async () => {
    const on = scene({ highWaterMark: 20 });
    await on.look();
    expect(await mark(on)).toBe(10);
  });

  test('continues when the lanes have room again', async () => {
    const { said, yielding, look } = scene();
    await look();
    said.waiting = 40 * LANES;
    const waited = yielding.wait(new AbortController().signal);
    await turn();
    said.waiting -= 1;
    await waited;
    expect(said.waits).toBe(0);
  });

  test('rests after its work during live requests, and otherwise not', async () => {
    const { yielding, look } = scene();
    await look(live);
    expect(await waits(yielding)).toBe(false);
    yielding.worked(60_000);
    expect(await waits(yielding)).toBe(true);
    await look();
    yielding.worked(60_000);
    expect(await waits(yielding)).toBe(false);
  });
});
