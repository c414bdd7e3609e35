import { describe, expect, test } from 'vitest';
import { nextRun, patternOf } from '../../src/integrations/schedule.ts';

const NOW = new Date('2026-01-31T12:07:30.000Z');

describe('a schedule', () => {
  test.each([
    ['every 15 minutes', '2026-01-31T12:15:00.000Z'],
    ['Every  30 Minutes', '2026-01-31T12:30:00.000Z'],
    ['hourly', '2026-01-31T13:00:00.000Z'],
    ['every hour', '2026-01-31T13:00:00.000Z'],
    ['every 1 hour', '2026-01-31T13:00:00.000Z'],
    ['every 6 hours', '2026-01-31T18:00:00.000Z'],
    ['daily', '2026-02-01T00:00:00.000Z'],
    ['weekly', '2026-02-02T00:00:00.000Z'],
    ['monthly', '2026-02-01T00:00:00.000Z'],
    ['*/15 * * * *', '2026-01-31T12:15:00.000Z'],
    ['5,20,35,50 * * * *', '2026-01-31T12:20:00.000Z'],
    ['30 4 * * 1-5', '2026-02-02T04:30:00.000Z'],
    ['30 4 * * mon', '2026-02-02T04:30:00.000Z'],
    ['0 0 28 * *', '2026-02-28T00:00:00.000Z'],
    // Cron matches either field: a day of the month or a day of the week.
    ['0 0 31 * sun', '2026-02-01T00:00:00.000Z'],
    // No scheduled hour follows, so that no run is within 15 minutes of this one.
    ['0,50 3 * * *', '2026-02-01T03:00:00.000Z'],
  ])('%s runs next, in UTC, at %s', (schedule, next) => {
    expect(nextRun(schedule, NOW).toISOString()).toBe(next);
  });

  test('the next time is later than now', () => {
    const time = new Date('2026-01-31T12:15:00.000Z');
    expect(nextRun('every 15 minutes', time).toISOString()).toBe('2026-01-31T12:30:00.000Z');
  });

  test.each([
    ['every 14 minutes'],
    ['every 1 minute'],
    ['* * * * *'],
    ['*/10 * * * *'],
    ['0,10 3 * * *'],
    ['0,50 * * * *'],
    ['0,50 0,23 * * *'],
  ])('%s is rejected as too frequent', (schedule) => {
    expect(() => patternOf(schedule)).toThrow(/more often than every 15 minutes/);
  });

  test.each([['0 0 1 1 *'], ['0 0 31 * *'], ['0 0 29-31 * *'], ['0 0 1 */2 *']])(
    '%s does not occur in every month',
    (schedule) => {
      expect(() => patternOf(schedule)).toThrow(/the least frequent schedule is monthly/);
    },
  );

  test.each([
    [''],
    ['often'],
    ['every 15 seconds'],
    ['every two hours'],
    ['0 0 0 1 * *'],
    ['H * * * *'],
    ['0 0 L * *'],
    ['0 0 * * 1#1'],
    ['@daily'],
    ['0 25 * * *'],
    ['-1 0 * * *'],
    ['every 45 minutes'],
    ['every 5 hours'],
    ['every 24 hours'],
  ])("'%s' is rejected with a message about valid schedules", (schedule) => {
    expect(() => patternOf(schedule)).toThrow(
      /is not a schedule; use|is not a cron expression|does not divide/,
    );
  });
});
