import { expect, test } from 'vitest';
import { describeReadings, watchResident } from '../../tools/bench/resident-memory.ts';
import { waitUntil } from '../setup/wait-until.ts';

/** Readings per second of a process that grows by 2 MB a second in its first minute, then by `perMinute`. */
function readings(seconds: number, perMinute: number) {
  return Array.from({ length: seconds + 1 }, (_, at) => {
    const warm = Math.min(at, 60);
    return { at: at * 1000, mb: 80 + 2 * warm + ((at - warm) * perMinute) / 60 };
  });
}

test('growth of memory is calculated without the first minute', () => {
  expect(describeReadings('web', readings(600, 0))).toEqual({
    ...{ warm_mb_web: 200, last_mb_web: 200, most_mb_web: 200, mb_per_minute_web: 0 },
  });
  expect(describeReadings('worker', readings(360, 6))).toMatchObject({
    ...{ warm_mb_worker: 200, last_mb_worker: 230, mb_per_minute_worker: 6 },
  });
});

test('one high reading is reported as the maximum, and hardly changes the slope', () => {
  const all = readings(600, 0);
  all[300]!.mb = 400;
  const summary = describeReadings('web', all);
  expect(summary.most_mb_web).toBe(400);
  expect(Math.abs(summary.mb_per_minute_web!)).toBeLessThan(0.5);
});

test('the second half counts if the watch is shorter than two minutes', () => {
  const summary = describeReadings('web', readings(40, 0));
  expect(summary).toMatchObject({ warm_mb_web: 120, last_mb_web: 160, mb_per_minute_web: 120 });
  expect(describeReadings('web', [])).toEqual({});
});

test.runIf(process.platform === 'linux')('a running process is watched until the end', async () => {
  const began = performance.now();
  const resident = watchResident({ self: process.pid });
  await waitUntil(async () => performance.now() - began > 50, { what: 'a little time' });
  const summary = resident.stop();
  expect(summary.last_mb_self).toBeGreaterThan(20);
  expect(summary.most_mb_self).toBeGreaterThanOrEqual(summary.warm_mb_self!);
});
