import { DateTime } from 'luxon';
import { FURTHER_TIME_ZONES, RAILS_TIME_ZONES } from './time-zone-names.ts';
import { codeAt } from './values.ts';

/** Longest accepted text, in characters: an RFC 9557 time with the longest zone name has fewer. */
const MAX_TIME_LENGTH = 80;

/**
 * Postgres reads no year 0 and the wire no year of five digits, so the accepted years are 1 to 9999, after
 * the offset is applied.
 */
export const EARLIEST = -62_135_596_800_000;
export const LATEST = 253_402_300_799_999;

const DAY = 86_400_000;
const MINUTE = 60_000;
/** From the first of January of the year 1, in the Gregorian calendar. */
const DAYS_BEFORE_1970 = 719_162;

const OFFSET = String.raw`Z|z|UTC|GMT|[+-](?:\d\d(?::?\d\d)?|\d(?::\d\d)?)`;

/** Year, month, day, hour, minute, second, fraction of a second, milliseconds after a colon, offset. */
const ISO_8601 = new RegExp(
  String.raw`^(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d)(?::?(\d\d)(?::?(\d\d)(?:[.,](\d+)|:(\d{3}))?)?)?(?: ?(${OFFSET}))?)?$`,
);
/** Month, day, year. */
const MONTH_FIRST = /^(\d{1,2})\/(\d{1,2})\/(\d{4})$/;
/** Weekday, month as number or name, day, hour, minute, second, offset, year. */
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
 * Reads a point in time; no zone means UTC, no time of day midnight.
 *
 * Accepts ISO 8601 (offsets also as `+1:00`, `+01`, `+0100`; a space for the T), the same with a colon
 * before the milliseconds, `MM/dd/yyyy`, and `ddd MM dd HH:mm:ss.TZD yyyy`. A leap second, which exists only
 * at the end of a UTC day, is read as the last millisecond of that day. Digits past the milliseconds are cut.
 *
 * @returns epoch milliseconds, or undefined for what is none of these or no real date
 */
export function parseTime(text: string): number | undefined {
  if (text.length > MAX_TIME_LENGTH) return undefined;
  return parseIso(text) ?? parseMonthFirst(text) ?? parseWeekdayFirst(text) ?? parseRareIso(text);
}

/** Whether a text is a date or a time in ISO 8601 or with a colon before the milliseconds. */
export function isDatetime(text: string): boolean {
  // The hyphen after the year tells nearly every other text apart without the expression.
  return text.length <= MAX_TIME_LENGTH && codeAt(text, 4) === 0x2d && parseIso(text) !== undefined;
}

/**
 * @param time epoch milliseconds within the years 1 to 9999
 * @returns ISO 8601 in UTC with milliseconds
 */
export function toIso(time: number): string {
  return new Date(time).toISOString();
}

/**
 * A time as the store has it: what the text says, in UTC with milliseconds; now where that lies in the future.
 *
 * @param now epoch milliseconds
 * @returns ISO 8601, or undefined for what `parseTime` does not read
 */
export function pastIso(text: string, now: number): string | undefined {
  const usual = readUsual(text);
  // To write such a text anew would take six times as long as to read it.
  if (usual !== undefined && usual <= now)
    return text.length === USUAL.length ? text : `${text.slice(0, 19)}.000Z`;
  const time = usual ?? parseTime(text);
  return time === undefined ? undefined : toIso(Math.min(time, now));
}

/** As nearly every client writes a time, or the same without its milliseconds. */
const USUAL = '2026-01-31T12:00:00.000Z';
const USUAL_SECONDS = '2026-01-31T12:00:00Z';
const ZERO = 0x30;

/** Epoch milliseconds of a time that is written as `USUAL` or `USUAL_SECONDS`; undefined for any other text. */
export function readUsual(text: string): number | undefined {
  const { length } = text;
  const model = length === USUAL.length ? USUAL : length === USUAL_SECONDS.length ? USUAL_SECONDS : undefined;
  if (model === undefined) return undefined;
  for (let place = 0; place < length; place++) {
    const unit = codeAt(text, place);
    const like = codeAt(model, place);
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

function twoDigits(text: string, place: number): number {
  return 10 * (codeAt(text, place) - ZERO) + codeAt(text, place + 1) - ZERO;
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
  // A weekday that contradicts the date leaves two meanings, so neither is taken.
  if (day === undefined || WEEKDAYS[new Date(day).getUTCDay()] !== match[1]) return undefined;
  return timeOfDay(day, sinceMidnight(match, 0, match[7]));
}

/** Luxon takes some 10 microseconds, and would read a bare time of day as one of today: hence the gate. */
function parseRareIso(text: string): number | undefined {
  if (!RARE_ISO_8601.test(text)) return undefined;
  const parsed = DateTime.fromISO(text, UTC);
  return parsed.isValid ? inRange(parsed.toMillis()) : undefined;
}

/** Epoch milliseconds of midnight UTC, or undefined when the calendar has no such day. */
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
 * Milliseconds from midnight UTC to a time of day of the same date in a zone; undefined for what no clock shows.
 * @param match hour, minute and second in its groups 4 to 6, in whichever form
 */
function sinceMidnight(match: RegExpExecArray, ms: number, zone: string | undefined): number | undefined {
  const hour = Number(match[4]);
  const minute = Number(match[5] ?? 0);
  const second = Number(match[6] ?? 0);
  const offset = offsetOf(zone);
  if (offset === undefined || minute > 59 || second > 60) return undefined;
  // ISO 8601 writes the end of a day as 24:00 as well.
  if (hour > 23 && !(hour === 24 && minute === 0 && second === 0 && ms === 0)) return undefined;
  const start = hour * 3_600_000 + minute * MINUTE - offset;
  if (second < 60) return start + second * 1000 + ms;
  return modulo(start + MINUTE, DAY) === 0 ? start + MINUTE - 1 : undefined;
}

/** Milliseconds east of UTC; undefined for an offset that no clock shows. */
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

/** The remainder with the sign of the divisor: times before 1970 are negative. */
function modulo(dividend: number, divisor: number): number {
  return ((dividend % divisor) + divisor) % divisor;
}

/** By lower-case name, since IANA names differ in more than case. */
const zoneByName = new Map<string, string>();
for (const [zone, names] of Object.entries(RAILS_TIME_ZONES)) {
  for (const name of names) zoneByName.set(name.toLowerCase(), zone);
}
for (const zone of [...FURTHER_TIME_ZONES, ...Intl.supportedValuesOf('timeZone')]) {
  zoneByName.set(zone.toLowerCase(), zone);
}

/** The longest known name has fewer characters. */
const MAX_TIME_ZONE_LENGTH = 40;

/**
 * The IANA name of a time zone that is given by this name or by the one of Ruby on Rails, in any case;
 * undefined for anything else, offsets included. A link such as Asia/Kolkata stays what it is.
 */
export function normalizeTimeZone(text: string): string | undefined {
  return text.length > MAX_TIME_ZONE_LENGTH ? undefined : zoneByName.get(text.toLowerCase());
}
