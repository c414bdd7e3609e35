import { CronExpressionParser } from 'cron-parser';

/** Thrown if a text is not a schedule. The message describes valid schedules. */
export class ScheduleError extends Error {
  override name = 'ScheduleError';
}

/** Minimum minutes between two runs. */
const MIN_MINUTES = 15;

/**
 * Numbers and names of months and days, with ranges, lists and steps. Extensions that only some crons support
 * are excluded.
 */
const FIELD = /^[\da-z*,/-]+$/i;

const FORMS =
  "'every 15 minutes', 'every 20 minutes', 'every 30 minutes', 'every hour', 'every 2 hours' (3, 4, 6, 8, 12), 'daily', 'weekly', 'monthly', or a cron expression of five fields in UTC such as '30 4 * * 1-5'";

const named: Record<string, string> = {
  hourly: '0 * * * *',
  'every hour': '0 * * * *',
  daily: '0 0 * * *',
  'every day': '0 0 * * *',
  weekly: '0 0 * * 1',
  'every week': '0 0 * * 1',
  monthly: '0 0 1 * *',
  'every month': '0 0 1 * *',
};

/**
 * Returns the cron expression of a schedule: five fields, in UTC. Runs begin at round times: `every 15
 * minutes` at :00, :15, :30 and :45, `weekly` on Mondays at midnight, `monthly` on the first.
 * @throws {ScheduleError} if the text is not a schedule, or runs more often than every 15 minutes or less
 * often than monthly
 */
export function patternOf(schedule: string): string {
  const text = schedule.trim().replace(/\s+/g, ' ').toLowerCase();
  const pattern = named[text] ?? everyPattern(text) ?? text;
  const fields = pattern.split(' ');
  if (fields.length !== 5 || !fields.every((field) => FIELD.test(field)))
    throw new ScheduleError(`'${schedule}' is not a schedule; use ${FORMS}`);
  requireSpacing(schedule, pattern);
  return pattern;
}

/**
 * Returns the next time of a schedule.
 *
 * @param schedule text that `patternOf` accepts
 * @param after the result is later than this time
 */
export function nextRun(schedule: string, after: Date): Date {
  return CronExpressionParser.parse(patternOf(schedule), { currentDate: after, tz: 'UTC' }).next().toDate();
}

/**
 * Returns the previous time of a schedule.
 *
 * @param before the result is earlier than this time
 */
export function lastDue(schedule: string, before: Date): Date {
  return CronExpressionParser.parse(patternOf(schedule), { currentDate: before, tz: 'UTC' }).prev().toDate();
}

/** Parses `every N minutes` and `every N hours`; returns undefined for other texts. */
function everyPattern(text: string): string | undefined {
  const [, count, unit] = /^every (\d{1,4}) (minute|hour)s?$/.exec(text) ?? [];
  if (!count || !unit) return undefined;
  const step = Number(count);
  if (unit === 'minute' && step < MIN_MINUTES) throw tooOften(text);
  // Other steps would leave a shorter step at the end of each hour or day.
  const whole = unit === 'minute' ? 60 : 24;
  if (step < 1 || step >= whole || whole % step !== 0)
    throw new ScheduleError(
      `'${text}' does not divide the ${unit === 'minute' ? 'hour' : 'day'}; use ${FORMS}`,
    );
  if (unit === 'minute') return `*/${step} * * * *`;
  return step === 1 ? '0 * * * *' : `0 */${step} * * *`;
}

function requireSpacing(schedule: string, pattern: string): void {
  let expression: ReturnType<typeof CronExpressionParser.parse>;
  try {
    expression = CronExpressionParser.parse(pattern, { tz: 'UTC' });
  } catch (error) {
    throw new ScheduleError(`'${schedule}' is not a cron expression: ${(error as Error).message}`);
  }
  const minutes: number[] = [...expression.fields.minute.values];
  const hours = expression.fields.hour.values as number[];
  const nextHour = hours.some((hour) => hours.includes((hour + 1) % 24));
  if (nextHour) minutes.push(minutes[0]! + 60);
  if (minutes.some((minute, index) => index > 0 && minute - minutes[index - 1]! < MIN_MINUTES))
    throw tooOften(schedule);

  const { month, dayOfMonth, dayOfWeek } = expression.fields;
  // Every month has the days 1 to 28. Days of the week apply in addition to days of the month.
  const monthly = dayOfMonth.values.some((day) => Number(day) <= 28) || !dayOfWeek.isWildcard;
  if (month.values.length < 12 || !monthly)
    throw new ScheduleError(
      `'${schedule}' does not occur in every month; the least frequent schedule is monthly`,
    );
}

function tooOften(schedule: string): ScheduleError {
  return new ScheduleError(`'${schedule}' occurs more often than every ${MIN_MINUTES} minutes`);
}
