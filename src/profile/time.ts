import { DateTime } from 'luxon';
import { FURTHER_TIME_ZONES, RAILS_TIME_ZONES } from './time-zone-names.ts';
import { codeAt } from './values.ts';

/** Maximum length of a time in characters. An RFC 9557 time with the longest zone name is shorter. */
const MAX_TIME_LENGTH = 80;

/**
 * The accepted years are 1 to 9999 after the offset is applied, because Postgres rejects year 0 and the API allows four
 * digits.
 */
const EARLIEST = -62_135_596_800_000;
const LATEST = 253_402_300_799_999;

const DAY = 86_400_000;
const MINUTE = 60_000;
/** Number of days between 0001-01-01 and 1970-01-01 in the Gregorian calendar. */
const DAYS_BEFORE_1970 = 719_162;

const OFFSET = String.raw`Z|z|UTC|GMT|[+-](?:\d\d(?::?\d\d)?|\d(?::\d\d)?)`;

/** Groups: year, month, day, hour, minute, second, fraction of a second, milliseconds after a colon, offset. */
const ISO_8601 = new RegExp(
  String.raw`^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+)|:(\d{3}))?)?)?(?: ?(${OFFSET}))?)?$`,
);
/** Groups: month, day, year. */
const MONTH_FIRST = /^(\d{1,2})\/(\d{1,2})\/(\d{4})$/;
/** Groups: weekday, month as number or name, day, hour, minute, second, offset, year. */
const WEEKDAY_FIRST = new RegExp(
  String.raw`^([A-Z][a-z]{2}) (\d\d|[A-Z][a-z]{2}) (\d{1,2}) (\d\d):(\d\d):(\d\d)(?:[. ]?(${OFFSET}))? (\d{4})$`,
);
/** Week dates, ordinal dates, dates without hyphens, and times with a zone name in brackets. */
const RARE_ISO_8601 = /^(?:\d{4}-?W\d\d|\d{4}-?\d{3}(?:T|$)|\d{8}(?:T|$)|\d{4}-\d\d-\d\dT.*\]$)/;
const UTC = { zone: 'utc' } as const;

const DAYS_OF_MONTH = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
const DAYS_BEFORE = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
const WEEKDAYS = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];

/**
 * Parses a time. Without a zone it is in UTC, without a time of day it is midnight.
 *
 * The formats are ISO 8601 (offsets also as `+1:00`, `+01` or `+0100`, and a space instead of the T), the same with a
 * colon before the milliseconds, `MM/dd/yyyy`, and `ddd MM dd HH:mm:ss.TZD yyyy`. A leap second, which is possible only
 * at the end of a UTC day, becomes the last millisecond of that day. Digits after the milliseconds are cut.
 *
 * @returns epoch milliseconds, or undefined if the text has another format or is not a real date
 */
export function parseTime(text: string): number | undefined {
  if (text.length > MAX_TIME_LENGTH) return undefined;
  return parseIso(text) ?? parseMonthFirst(text) ?? parseWeekdayFirst(text) ?? parseRareIso(text);
}

/** Returns whether a text is a date or a time in ISO 8601, or with a colon before the milliseconds. */
export function isDatetime(text: string): boolean {
  // Most other texts have no hyphen after the year position, so the expression is not needed for them.
  return text.length <= MAX_TIME_LENGTH && codeAt(text, 4) === 0x2d && parseIso(text) !== undefined;
}

/**
 * Formats a time.
 * @param time epoch milliseconds within the years 1 to 9999
 * @returns ISO 8601 in UTC with milliseconds
 */
export function toIso(time: number): string {
  return new Date(time).toISOString();
}

/**
 * Converts a time to its stored form, in UTC with milliseconds. A time in the future is replaced by `now`.
 *
 * @param now epoch milliseconds
 * @returns ISO 8601, or undefined if `parseTime` rejects the text
 */
export function pastIso(text: string, now: number): string | undefined {
  const usual = readUsual(text);
  // Formatting such a time again would take six times as long as parsing it.
  if (usual !== undefined && usual <= now)
    return text.length === USUAL.length ? text : `${text.slice(0, 19)}.000Z`;
  const time = usual ?? parseTime(text);
  return time === undefined ? undefined : toIso(Math.min(time, now));
}

/** The format that most clients use, with and without milliseconds. */
const USUAL = '2026-01-31T12:00:00.000Z';
const USUAL_SECONDS = '2026-01-31T12:00:00Z';
const ZERO = 0x30;

/** Parses a time in the format of `USUAL` or `USUAL_SECONDS`. Returns epoch milliseconds, or undefined for other texts. */
export function readUsual(text: string): number | undefined {
  const { length } = text;
  const model = length === USUAL.length ? USUAL : length === USUAL_SECONDS.length ? USUAL_SECONDS : undefined;
  if (model === undefined) return undefined;
  for (let index = 0; index < length; index++) {
    const unit = codeAt(text, index);
    const like = codeAt(model, index);
    const isDigit = like >= ZERO && like <= ZERO + 9;
    if (isDigit ? unit < ZERO || unit > ZERO + 9 : unit !== like) return undefined;
  }
  const hour = twoDigits(text, 11);
  const minute = twoDigits(text, 14);
  const second = twoDigits(text, 17);
  if (hour > 23 || minute > 59 || second > 59) return undefined;
  const year = 100 * twoDigits(text, 0) + twoDigits(text, 2);
  const day = startOfDay(year, twoDigits(text, 5), twoDigits(text, 8));
  if (day === undefined || day < EARLIEST) return undefined;
  const ms = length === USUAL.length ? 10 * twoDigits(text, 20) + codeAt(text, 22) - ZERO : 0;
  return day + hour * 3_600_000 + minute * MINUTE + second * 1000 + ms;
}

function twoDigits(text: string, index: number): number {
  return 10 * (codeAt(text, index) - ZERO) + codeAt(text, index + 1) - ZERO;
}

function parseIso(text: string): number | undefined {
  const match = ISO_8601.exec(text);
  if (match === null) return undefined;
  const day = startOfDay(Number(match[1]), Number(match[2]), Number(match[3]));
  if (day === undefined) return undefined;
  if (match[4] === undefined) return day >= EARLIEST ? day : undefined;
  const ms = match[7] === undefined ? Number(match[8] ?? 0) : milliseconds(match[7]);
  return timeOfDay(day, sinceMidnight(match, ms, match[9]));
}

function parseMonthFirst(text: string): number | undefined {
  const match = MONTH_FIRST.exec(text);
  if (match === null) return undefined;
  const day = startOfDay(Number(match[3]), Number(match[1]), Number(match[2]));
  return day !== undefined && day >= EARLIEST ? day : undefined;
}

function parseWeekdayFirst(text: string): number | undefined {
  const match = WEEKDAY_FIRST.exec(text);
  if (match === null) return undefined;
  const month = MONTHS.indexOf(match[2]!) + 1 || Number(match[2]);
  const day = startOfDay(Number(match[8]), month, Number(match[3]));
  // If the weekday contradicts the date, the time is ambiguous and is rejected.
  if (day === undefined || WEEKDAYS[new Date(day).getUTCDay()] !== match[1]) return undefined;
  return timeOfDay(day, sinceMidnight(match, 0, match[7]));
}

/**
 * Parses rare ISO 8601 formats with Luxon. The expression excludes other texts, because Luxon takes about 10 µs, and
 * parses a bare time of day as a time of the current day.
 */
function parseRareIso(text: string): number | undefined {
  if (!RARE_ISO_8601.test(text)) return undefined;
  const parsed = DateTime.fromISO(text, UTC);
  return parsed.isValid ? inRange(parsed.toMillis()) : undefined;
}

/** Returns the epoch milliseconds of midnight UTC, or undefined if the date does not exist. */
function startOfDay(year: number, month: number, day: number): number | undefined {
  if (!(month >= 1 && month <= 12) || day < 1) return undefined;
  const leap = year % 4 === 0 && (year % 100 !== 0 || year % 400 === 0);
  if (day > DAYS_OF_MONTH[month - 1]! + (leap && month === 2 ? 1 : 0)) return undefined;
  const years = year - 1;
  const leapDays = Math.floor(years / 4) - Math.floor(years / 100) + Math.floor(years / 400);
  const ofYear = DAYS_BEFORE[month - 1]! + (leap && month > 2 ? 1 : 0) + day - 1;
  return (365 * years + leapDays + ofYear - DAYS_BEFORE_1970) * DAY;
}

function timeOfDay(day: number, sinceMidnight: number | undefined): number | undefined {
  return sinceMidnight === undefined ? undefined : inRange(day + sinceMidnight);
}

/**
 * Returns the milliseconds from midnight UTC of a date to a time of day of the same date in a zone, or undefined if the
 * time of day does not exist.
 *
 * @param match match with hour, minute and second in groups 4 to 6
 */
function sinceMidnight(match: RegExpExecArray, ms: number, zone: string | undefined): number | undefined {
  const hour = Number(match[4]);
  const minute = Number(match[5] ?? 0);
  const second = Number(match[6] ?? 0);
  const offset = offsetOf(zone);
  if (offset === undefined || minute > 59 || second > 60) return undefined;
  // ISO 8601 also allows 24:00 for the end of a day.
  if (hour > 23 && !(hour === 24 && minute === 0 && second === 0 && ms === 0)) return undefined;
  const start = hour * 3_600_000 + minute * MINUTE - offset;
  if (second < 60) return start + second * 1000 + ms;
  return modulo(start + MINUTE, DAY) === 0 ? start + MINUTE - 1 : undefined;
}

/** Returns the offset east of UTC in milliseconds, or undefined if it is not valid. */
function offsetOf(zone: string | undefined): number | undefined {
  if (zone === undefined) return 0;
  const sign = zone.charCodeAt(0);
  if (sign !== 0x2b && sign !== 0x2d) return 0;
  const colon = zone.indexOf(':');
  const hourEnd = colon === -1 ? 3 : colon;
  const hours = Number(zone.slice(1, hourEnd));
  const minutes = Number(zone.slice(colon === -1 ? 3 : colon + 1));
  if (hours > 23 || minutes > 59) return undefined;
  const offset = (hours * 60 + minutes) * MINUTE;
  return sign === 0x2d ? -offset : offset;
}

function milliseconds(fraction: string): number {
  const digits = Number(fraction.slice(0, 3));
  return fraction.length >= 3 ? digits : fraction.length === 2 ? digits * 10 : digits * 100;
}

function inRange(time: number): number | undefined {
  return time >= EARLIEST && time <= LATEST ? time : undefined;
}

/** Returns the remainder with the sign of the divisor. Times before 1970 are negative. */
function modulo(dividend: number, divisor: number): number {
  return ((dividend % divisor) + divisor) % divisor;
}

/** IANA names by lower-case name. IANA names that differ only in case do not exist. */
const zoneByName = new Map<string, string>();
for (const [zone, names] of Object.entries(RAILS_TIME_ZONES)) {
  for (const name of names) zoneByName.set(name.toLowerCase(), zone);
}
for (const zone of [...FURTHER_TIME_ZONES, ...Intl.supportedValuesOf('timeZone')]) {
  zoneByName.set(zone.toLowerCase(), zone);
}

/** Upper bound of the length of a known name. */
const MAX_TIME_ZONE_LENGTH = 40;

/**
 * Returns the IANA name of a time zone, given this name or the name of Ruby on Rails, in any case. Returns undefined
 * for other texts, including offsets. A link such as Asia/Kolkata keeps its name.
 */
export function normalizeTimeZone(text: string): string | undefined {
  return text.length > MAX_TIME_ZONE_LENGTH ? undefined : zoneByName.get(text.toLowerCase());
}
