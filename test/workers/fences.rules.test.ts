import { expect, onTestFinished, test, vi } from 'vitest';
import type { EnvelopeRequest } from '../../src/jobs/envelope.ts';
import { NIL_UUID, newId } from '../../src/platform/ids.ts';
import { createLog } from '../../src/platform/log.ts';
import { fenceEntries } from '../../src/queue/pack.ts';
import type { Pool } from '../../src/store/database.ts';
import { Fences, type OpenLane } from '../../workers/fence/fences.ts';
import { createWorkerMetrics } from '../../workers/metrics.ts';

/** Opens two lanes of a worker. The answers of Postgres know no arrival, and only the `applied` envelopes. */
function scene({ shards = 1, applied = [] as string[] } = {}) {
  const asked: string[][] = [];
  const query = async ({ name, values }: { name: string; values: string[][] }) => {
    if (name === 'read-applied') return { rows: applied.map((id) => ({ id })) };
    asked.push(values[0]!);
    return { rows: [] };
  };
  const fences = new Fences({
    ...{ pool: { query } as unknown as Pool, layout: { shards, lanes: 2 } },
    ...{ metrics: createWorkerMetrics(), log: createLog('test', 'silent') },
  });
  const [home, other] = [0, 1].map((lane): OpenLane => ({ lane, onChange() {} })) as [OpenLane, OpenLane];
  for (const lane of [home, other]) fences.open(lane);
  onTestFinished(() => {
    for (const lane of [home, other]) fences.close(lane);
  });
  return { fences, asked, home, other };
}

const fence = (id: string) => ({ id, lanes: [0, 1] });

test('without a lane at a fence, no timer runs, and Postgres is not asked', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const { fences, asked, home, other } = scene();
  fences.wait(other, [{ fence: fence('F'), isFirst: true }]);
  fences.wait(home, [{ fence: fence('G'), isFirst: false }]);
  await vi.advanceTimersByTimeAsync(300);
  expect(asked).toEqual([['F']]);
  fences.wait(other, []);
  await vi.advanceTimersByTimeAsync(1000);
  expect([asked, vi.getTimerCount()]).toEqual([[['F']], 0]);
});

test('a lane that finds a fence again still knows that it was passed meanwhile', () => {
  const { fences, home, other } = scene();
  fences.wait(home, [{ fence: fence('F'), isFirst: true }]);
  fences.wait(other, [{ fence: fence('F'), isFirst: true }]);
  expect(fences.isOpen(fence('F'), 0)).toBe(true);
  fences.wait(other, []);
  fences.pass([fence('F')]);
  fences.wait(home, []);
  fences.wait(other, [{ fence: fence('F'), isFirst: true }]);
  expect(fences.isOpen(fence('F'), 1)).toBe(true);
});

test('Postgres is asked about a fence that a lane has reached and found again', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const { fences, asked, other } = scene();
  for (const waits of [[{ fence: fence('F'), isFirst: true }], [], [{ fence: fence('F'), isFirst: true }]])
    fences.wait(other, waits);
  await vi.advanceTimersByTimeAsync(300);
  expect(asked).toEqual([['F']]);
});

test('a mark that was damaged in the second shard counts as an arrival', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  const id = newId();
  const [, mark] = fenceEntries(id, [0, 1], {
    requests: [{ workspace_id: NIL_UUID, count: 0 } as EnvelopeRequest],
    objects: [],
  });
  const { fences } = scene({ shards: 2, applied: [mark!.id] });
  const damaged = { id, lanes: [2, 3] };
  const home: OpenLane = { lane: 2, onChange() {} };
  fences.open(home);
  onTestFinished(() => fences.close(home));
  fences.wait(home, [{ fence: damaged, isFirst: true }]);
  expect(fences.isOpen(damaged, 2)).toBe(false);
  await vi.advanceTimersByTimeAsync(3000);
  expect(fences.isOpen(damaged, 2)).toBe(true);
});
