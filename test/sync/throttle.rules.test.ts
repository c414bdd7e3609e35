import { describe, expect, test } from 'vitest';
import { memoryTokenBuckets } from '../../src/limits/token-buckets.ts';
import { createThrottle } from '../../workers/sync/throttle.ts';

const workspace = '018f0000-0000-7000-8000-000000000000';

/**
 * Creates the throttle of a run on a clock that the test controls, and the bucket that it shares with live
 * requests.
 */
function scene(lanes = 1) {
  let now = 0;
  let waiting = 0;
  const buckets = memoryTokenBuckets(() => now);
  const send = createThrottle({ buckets, waiting: () => waiting, lanes, workspaceId: workspace });
  return {
    send,
    live: (limit: { requests: number; windowSeconds: number }, tokens: number) =>
      buckets.take(`${workspace}:users.track`, limit, tokens),
    pass: (milliseconds: number) => {
      now += milliseconds;
    },
    wait: (jobs: number) => {
      waiting = jobs;
    },
  };
}

describe('the throttle of a sync', () => {
  test('one token of /users/track pays for 75 rows, across chunks', async () => {
    const { send, live } = scene();
    const limit = { requests: 100, windowSeconds: 60 };
    for (let chunk = 0; chunk < 15; chunk++) expect(await send(10, limit)).toBe(0);
    expect(await live(limit, 0)).toMatchObject({ left: 98 });
  });

  test('half of the bucket is reserved for live requests', async () => {
    const { send, live, pass } = scene();
    const limit = { requests: 100, windowSeconds: 100 };
    let rows = 0;
    while ((await send(75, limit)) === 0) rows += 75;
    expect(rows).toBe(51 * 75);
    expect((await live(limit, 0)).left).toBe(49);
    pass(1000);
    expect(await send(75, limit)).toBe(0);
    // Live requests may use the whole bucket; the sync then waits until it is half full.
    await live(limit, 49);
    for (let second = 0; second < 50; second++) {
      expect(await send(75, limit)).toBeGreaterThan(0);
      pass(1000);
    }
    pass(1000);
    expect(await send(75, limit)).toBe(0);
  });

  test('a chunk that costs more than a small bucket holds is paid for in parts', async () => {
    const { send, pass } = scene();
    const limit = { requests: 2, windowSeconds: 1 };
    let milliseconds = 0;
    for (let wait = await send(750, limit); wait > 0; wait = await send(750, limit)) {
      pass(wait);
      milliseconds += wait;
    }
    // The chunk costs ten tokens: the bucket has two, and one is left.
    expect(milliseconds).toBeGreaterThan(3500);
    expect(milliseconds).toBeLessThan(5500);
  });

  test('waits while the lanes have a backlog', async () => {
    const { send, wait } = scene(4);
    wait(12);
    expect(await send(75)).toBeGreaterThan(0);
    wait(11);
    expect(await send(75)).toBe(0);
  });
});
