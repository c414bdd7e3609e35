import { expect, test } from 'vitest';
import { barChart, lineChart } from '../../src/board/chart.ts';
import { pointsOf, ranges } from '../../src/board/history.ts';
import type { RecordedFleet } from '../../src/store/health.ts';

const NOW = Date.parse('2026-03-01T12:00:30Z');
const MINUTE = 60_000;

/** Creates a row from n minutes ago, with counters that grow by 60 per minute. */
function row(minutesAgo: number, change: Partial<RecordedFleet> = {}): RecordedFleet {
  const at = Math.floor(NOW / MINUTE) * MINUTE - minutesAgo * MINUTE;
  const grown = 100_000 - minutesAgo * 60;
  return {
    ...{ at: new Date(at), lookedAt: new Date(at + 5000), accepted: grown, refused: 0, deadLetters: 0 },
    ...{ applied: [grown, grown * 2], depth: [3, 4], oldestSeconds: [0.5, 2] },
    ...{ workers: 2, postgresMs: 1, redisMs: null },
    ...change,
  };
}

const lastOf = (rows: RecordedFleet[], count = 3) => pointsOf(rows, ranges.hour, NOW).slice(-count);

test('counters become rates, also by lane, and an hour has sixty points up to now', () => {
  const points = pointsOf([row(2), row(1), row(0)], ranges.hour, NOW);
  expect(points).toHaveLength(60);
  expect(points.at(-1)).toMatchObject({
    ...{ at: Date.parse('2026-03-01T12:00:00Z'), accepted: 1, applied: 3, refused: 0, waiting: 7 },
    ...{
      oldestSeconds: 2,
      workers: 2,
      lanes: [
        { applied: 1, depth: 3 },
        { applied: 2, depth: 4 },
      ],
    },
  });
});

test('the last point is the previous minute until this minute has a row', () => {
  expect(lastOf([row(2), row(1)], 1)[0]!.at).toBe(Date.parse('2026-03-01T11:59:00Z'));
});

test('a missing row is a gap and not zero, and the rate after a long gap is unknown', () => {
  const [gap, slow, later] = lastOf([row(6), row(1), row(0)]);
  expect(gap).toEqual({ at: gap!.at });
  expect(slow).toMatchObject({ accepted: undefined, applied: undefined, waiting: 7 });
  expect(later!.accepted).toBe(1);
});

test('the rate across one missing minute covers both minutes', () => {
  expect(lastOf([row(3), row(2), row(0)], 1)[0]!.accepted).toBe(1);
});

test('a counter that was reset has no rate at that point, and never a negative one', () => {
  const [, back, on] = lastOf([row(2), row(1, { accepted: 5 }), row(0, { accepted: 65 })]);
  expect(back).toMatchObject({ accepted: undefined, applied: 3 });
  expect(on!.accepted).toBe(1);
});

test('added lanes start without a rate, and an unknown queue depth is not shown as zero', () => {
  const [, , point] = lastOf([row(1, { applied: [99_940] }), row(0, { depth: null, oldestSeconds: null })]);
  expect(point).toMatchObject({ waiting: undefined, oldestSeconds: undefined });
  expect(point!.lanes).toEqual([
    { applied: 1, depth: undefined },
    { applied: undefined, depth: undefined },
  ]);
});

test('a chart describes its lines in words, breaks them at gaps, and shades missing rows', () => {
  const drawn = lineChart('Objects', {
    lines: [{ name: 'Accepted', values: [1, 2, undefined, 4, undefined, 5, 6] }],
    times: [0, 1, 2, 3, 4, 5, 6].map((minute) => minute * MINUTE),
    ...{ show: (value: number) => `${value} objects/s`, minTop: 1, axis: 'time' },
  }).text;
  expect(drawn).toContain(
    'aria-label="Objects. Accepted: latest 6 objects/s, highest 6 objects/s; no figures for 2 of 7 points"',
  );
  expect(drawn.match(/class="gap"/g)).toHaveLength(2);
  const [, path] = / d="([^"]+)"/.exec(drawn)!;
  // Two lines, and a point without neighbors.
  expect(path!.match(/M/g)).toHaveLength(3);
  expect(path).toContain('H');
});

test('a bar chart describes its bars in words, and its smallest part stays visible', () => {
  const drawn = barChart('Rows', {
    parts: ['synced', 'failed'],
    bars: [
      { of: 'Monday', values: [1_000_000, 1] },
      { of: 'Tuesday', values: [0, 0] },
      { of: 'Friday', values: [500, 0] },
    ],
    show: String,
  }).text;
  expect(drawn).toContain(
    'aria-label="Rows. 3 bars, the latest Friday: 500 synced, 0 failed; the largest Monday: 1000000 synced, 1 failed"',
  );
  const [synced, failed] = [...drawn.matchAll(/ y="([\d.]+)" width="[\d.]+" height="([\d.]+)"/g)].map(
    ([, y, height]) => ({ y: Number(y), height: Number(height) }),
  );
  expect(failed!.height).toBe(2);
  // The parts are stacked and do not exceed the drawing.
  expect(failed!.y + failed!.height).toBeCloseTo(synced!.y, 1);
  expect(failed!.y).toBeGreaterThanOrEqual(0);
  expect(drawn).toContain('<title>Monday: 1000000 synced, 1 failed</title>');
});

test('the x axis of a chart has the times of its quarters, as days for a week', () => {
  const times = Array.from(
    { length: 60 },
    (_, minute) => Date.parse('2026-03-01T11:00:00Z') + minute * MINUTE,
  );
  const lines = [{ name: 'Accepted', values: times.map(() => 1) }];
  const axisOf = (axis: 'time' | 'day') => {
    const drawn = lineChart('Objects', { lines, times, axis, show: String, minTop: 1 }).text;
    return [...drawn.matchAll(/data-axis="[a-z]+">([^<]+)</g)].map(([, text]) => text);
  };
  expect(axisOf('time')).toEqual(['11:00', '11:15', '11:30', '11:45']);
  expect(new Set(axisOf('day'))).toEqual(new Set(['03-01']));
});
