import { CronExpressionParser } from 'cron-parser';

/** Why a text is no schedule; the message says what one looks like. */
export class ScheduleError extends Error {
  override name = 'ScheduleError';
}

/** Minutes that lie between two runs at least. */
const LEAST_MINUTES = 15;

/** Numbers and names of months and days, with ranges, lists and steps; nothing of what only some crons know. */
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
 * The cron expression of a schedule: five fields, in UTC. A run begins at round times: `every 15 minutes` at :00, :15,
 * :30 and :45, `weekly` on Mondays at midnight, `monthly` on the first.
 * @throws {ScheduleError} when it is none, comes more often than every 15 minutes, or less often than monthly
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
 * When a schedule comes next.
 *
 * @param schedule as `patternOf` takes it
 * @param after the time found lies behind it
 */
export function nextRun(schedule: string, after: Date): Date {
  return CronExpressionParser.parse(patternOf(schedule), { currentDate: after, tz: 'UTC' }).next().toDate();
}

/**
 * When a schedule came last.
 *
 * @param before the time found lies before it
 */
export function lastDue(schedule: string, before: Date): Date {
  return CronExpressionParser.parse(patternOf(schedule), { currentDate: before, tz: 'UTC' }).prev().toDate();
}

/** Undefined: the text does not begin as these do. */
function everyPattern(text: string): string | undefined {
  const [, count, unit] = /^every (\d{1,4}) (minute|hour)s?$/.exec(text) ?? [];
  if (!count || !unit) return undefined;
  const step = Number(count);
  if (unit === 'minute' && step < LEAST_MINUTES) throw tooOften(text);
  // Others would leave a shorter step at the end of each hour or day.
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
  if (minutes.some((minute, index) => index > 0 && minute - minutes[index - 1]! < LEAST_MINUTES))
    throw tooOften(schedule);

  const { month, dayOfMonth, dayOfWeek } = expression.fields;
  // Every month has the days 1 to 28; days of the week come beside those of the month.
  const monthly = dayOfMonth.values.some((day) => Number(day) <= 28) || !dayOfWeek.isWildcard;
  if (month.values.length < 12 || !monthly)
    throw new ScheduleError(
      `'${schedule}' does not occur in every month; the least frequent schedule is monthly`,
    );
}

function tooOften(schedule: string): ScheduleError {
  return new ScheduleError(`'${schedule}' occurs more often than every ${LEAST_MINUTES} minutes`);
}
