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
    throw new ScheduleError(`'${schedule}' is no schedule; there are: ${FORMS}`);
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
      `'${text}' does not divide the ${unit === 'minute' ? 'hour' : 'day'}; there are: ${FORMS}`,
    );
  if (unit === 'minute') return `*/${step} * * * *`;
  return step === 1 ? '0 * * * *' : `0 */${step} * * *`;
}

function requireSpacing(schedule: string, pattern: string): void {
  let expression: ReturnType<typeof CronExpressionParser.parse>;
  try {
    expression = CronExpressionParser.parse(pattern, { tz: 'UTC' });
  } catch (error) {
    throw new ScheduleError(`'${schedule}' is no cron expression: ${(error as Error).message}`);
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
    throw new ScheduleError(`'${schedule}' does not come in every month; the rarest schedule is monthly`);
}

function tooOften(schedule: string): ScheduleError {
  return new ScheduleError(`'${schedule}' comes more often than every ${LEAST_MINUTES} minutes`);
}

const DATE = [
  '([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])',
  '[0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30)',
  '[0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8])',
  '[0-9]{2}(0[48]|[2468][048]|[13579][26])-02-29',
  '([02468][048]|[13579][26])00-02-29)',
].join('|');
const CLOCK = '([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,9})?)?';
const OFFSET = '( ?(Z|UTC|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?))?';

/**
 * What is a time in a column of texts, as an expression that Postgres, Redshift and DuckDB read alike. It is an ISO
 * 8601 date, alone or with a time of day behind a T or a space. An offset may follow; none means UTC. Days that no
 * month has do not match: a database would end the whole statement at the first of them. A number is no time, since
 * seconds and milliseconds look alike. Year 0 has to be refused beside it.
 */
export const TIME_PATTERN = `^${DATE}([T ]${CLOCK}${OFFSET})?$`;

/** The form of `SourceRow.updatedAt`. */
const CANONICAL = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$/;

/** @throws {RangeError} when it is not in the form of `SourceRow.updatedAt`: it becomes part of a statement */
export function assertCanonical(time: string): void {
  if (!CANONICAL.test(time)) throw new RangeError(`no time to the microsecond in UTC: ${time}`);
}

/** Times outside of these have no text that compares as they do. */
export const EARLIEST = '0001-01-01 00:00:00';
export const LATEST = '9999-12-31 23:59:59.999999';
