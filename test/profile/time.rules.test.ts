import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { isDatetime, parseTime, pastIso, toIso } from '../../src/profile/time.ts';
import { lengthOf } from '../setup/length.ts';

const noon = Date.UTC(2026, 0, 31, 12, 0, 0);

describe('a time is read', () => {
  test.each([
    ['ISO 8601 in UTC', '2026-01-31T12:00:00Z', noon],
    ['with milliseconds', '2026-01-31T12:00:00.250Z', noon + 250],
    ['with a tenth of a second', '2026-01-31T12:00:00.5Z', noon + 500],
    ['with microseconds, which are cut', '2026-01-31T12:00:00.123999Z', noon + 123],
    ['with a comma before the fraction', '2026-01-31T12:00:00,25Z', noon + 250],
    ['without a zone as UTC', '2026-01-31T12:00:00', noon],
    ['a date alone as midnight UTC', '2026-01-31', Date.UTC(2026, 0, 31)],
    ['without seconds', '2026-01-31T12:00Z', noon],
    ['without minutes', '2026-01-31T12Z', noon],
    ['with an offset', '2026-01-31T13:00:00+01:00', noon],
    ['with a negative offset', '2026-01-31T04:30:00-07:30', noon],
    ['with an offset of one digit', '2026-01-31T13:00:00+1:00', noon],
    ['with an offset of hours', '2026-01-31T13:00:00+01', noon],
    ['with an offset of one digit alone', '2026-01-31T13:00:00+1', noon],
    ['with an offset without colon', '2026-01-31T13:00:00+0100', noon],
    ['with a space for the T', '2026-01-31 12:00:00', noon],
    ['with a space for the T and before the offset', '2026-01-31 13:00:00 +0100', noon],
    ['with UTC as the zone', '2026-01-31 12:00:00 UTC', noon],
    ['in lower case', '2026-01-31t12:00:00z', noon],
    ['with a colon before the milliseconds and an offset', '2026-01-31T12:00:00:250+0000', noon + 250],
    ['with a colon before the milliseconds and Z', '2026-01-31T12:00:00:250Z', noon + 250],
    ['with a colon before the milliseconds and no zone', '2026-01-31T12:00:00:250', noon + 250],
    ['at the end of a day as 24:00', '2026-01-30T24:00:00Z', Date.UTC(2026, 0, 31)],
    ['on a leap day', '2024-02-29T00:00:00Z', Date.UTC(2024, 1, 29)],
    ['as MM/dd/yyyy', '01/31/2026', Date.UTC(2026, 0, 31)],
    ['as M/d/yyyy', '1/2/2026', Date.UTC(2026, 0, 2)],
    ['as ddd MM dd HH:mm:ss.TZD yyyy', 'Sat 01 31 12:00:00.Z 2026', noon],
    ['as ddd MM dd with an offset', 'Sat 01 31 13:00:00.+01:00 2026', noon],
    ['as ddd MMM dd with a space before the offset', 'Sat Jan 31 12:00:00 +0000 2026', noon],
    ['as ddd MMM dd without an offset', 'Sat Jan 31 12:00:00 2026', noon],
    ['as a week date', '2026-W05-6T12:00:00Z', noon],
    ['as an ordinal date', '2026-031T12:00:00Z', noon],
    ['in the basic format', '20260131T120000Z', noon],
    ['with a zone name in brackets', '2026-01-31T13:00:00+01:00[Europe/Paris]', noon],
    ['in the first accepted year', '0001-01-01T00:00:00Z', -62_135_596_800_000],
    ['in a year below 100', '0099-12-31', Date.parse('0099-12-31T00:00:00Z')],
    ['in the last accepted year', '9999-12-31T23:59:59.999Z', Date.UTC(9999, 11, 31, 23, 59, 59, 999)],
    ['before 1970', '1969-12-31T23:59:59Z', -1000],
  ])('%s', (_rule, text, time) => {
    expect(parseTime(text)).toBe(time);
  });
});

test('the first and last days of every month of the accepted years are read correctly', () => {
  const wrong: string[] = [];
  for (let year = 1; year <= 9999; year++)
    for (let month = 0; month < 12; month++)
      for (const day of [1, 28, 29, 30, 31]) {
        const date = new Date(0);
        date.setUTCFullYear(year, month, day);
        const text = `${String(year).padStart(4, '0')}-${String(month + 1).padStart(2, '0')}-${String(day).padStart(2, '0')}`;
        // Date continues into the next month if the month has fewer days.
        const time = date.getUTCMonth() === month ? date.getTime() : undefined;
        if (parseTime(text) !== time || parseTime(`${text}T00:00:00.000Z`) !== time) wrong.push(text);
      }
  expect(wrong).toEqual([]);
});

describe('a time is rejected', () => {
  test.each([
    ['that is empty', ''],
    ['that is not a time', 'yesterday'],
    ['on the 30th of February', '2026-02-30'],
    ['on the 29th of February of a common year', '2026-02-29T00:00:00Z'],
    ['on the 29th of February of 1900', '1900-02-29'],
    ['in month 13', '2026-13-01'],
    ['in month 0', '2026-00-01'],
    ['on day 0', '2026-01-00'],
    ['at hour 25', '2026-01-31T25:00:00Z'],
    ['past the end of a day', '2026-01-31T24:00:01Z'],
    ['at minute 60', '2026-01-31T12:60:00Z'],
    ['at second 61', '2026-01-31T12:00:61Z'],
    ['with an offset of 24 hours', '2026-01-31T12:00:00+24:00'],
    ['with an offset of 60 minutes', '2026-01-31T12:00:00+01:60'],
    ['with an offset of three digits', '2026-01-31T12:00:00+100'],
    ['with two digits after the colon of the milliseconds', '2026-01-31T12:00:00:25Z'],
    ['in year 0, which Postgres cannot read', '0000-12-31T23:59:59Z'],
    ['in year 0 after its offset', '0001-01-01T00:00:00+01:00'],
    ['in year 10000', '10000-01-01'],
    ['in year 10000 after its offset', '9999-12-31T23:59:59-01:00'],
    ['with a signed year', '+2026-01-31'],
    ['with the day first', '31/01/2026'],
    ['whose weekday contradicts its date', 'Mon 01 31 12:00:00.Z 2026'],
    ['with an unknown month name', 'Sat Foo 31 12:00:00 2026'],
    ['with white space around it', ' 2026-01-31 '],
    ['that is only a time of day', '12:00:00'],
    ['in a week that the year does not have', '2026-W60-1'],
    ['longer than any time', `2026-01-31T12:00:00.${'1'.repeat(100)}Z`],
  ])('%s', (_rule, text) => {
    expect(parseTime(text)).toBeUndefined();
  });
});

test('a leap second is the last millisecond of its day', () => {
  const last = Date.UTC(2016, 11, 31, 23, 59, 59, 999);
  expect(parseTime('2016-12-31T23:59:60Z')).toBe(last);
  expect(parseTime('2016-12-31T23:59:60.500Z')).toBe(last);
  expect(parseTime('2017-01-01T08:59:60+09:00')).toBe(last);
  expect(parseTime('1968-12-31T23:59:60Z')).toBe(Date.UTC(1968, 11, 31, 23, 59, 59, 999));
});

test('a second 60 elsewhere in a day is rejected', () => {
  expect(parseTime('2016-12-31T12:00:60Z')).toBeUndefined();
});

test('every instant survives its ISO form', () => {
  const instants = fc.date({
    min: new Date('0001-01-01T00:00:00Z'),
    max: new Date('9999-12-31T23:59:59.999Z'),
    noInvalidDate: true,
  });
  fc.assert(
    fc.property(instants, (date) => {
      expect(parseTime(date.toISOString())).toBe(date.getTime());
      expect(toIso(date.getTime())).toBe(date.toISOString());
    }),
  );
});

test('an offset moves the instant', () => {
  const offsets = fc.integer({ min: -14 * 60, max: 14 * 60 });
  fc.assert(
    fc.property(offsets, (minutes) => {
      const sign = minutes < 0 ? '-' : '+';
      const hour = String(Math.trunc(Math.abs(minutes) / 60)).padStart(2, '0');
      const rest = String(Math.abs(minutes) % 60).padStart(2, '0');
      expect(parseTime(`2026-01-31T12:00:00${sign}${hour}:${rest}`)).toBe(noon - minutes * 60_000);
    }),
  );
});

test('every text results in a valid time or undefined, without an exception', () => {
  const nearlyTimes = fc.stringMatching(/^\d{4}-?[\dW]\d-?\d\d?[T ]?\d\d:?\d\d:?\d\d[.:]?\d*[Z+-]?\d{0,4}$/);
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary' }), nearlyTimes), (text) => {
      const time = parseTime(text);
      if (time !== undefined) expect(Number.isInteger(time)).toBe(true);
    }),
  );
});

describe('a datetime inside an array is recognized', () => {
  test.each(['2026-01-31', '2026-01-31T12:00:00Z', '2026-01-31 12:00:00', '2026-01-31T12:00:00:000Z'])(
    '%s is one',
    (text) => expect(isDatetime(text)).toBe(true),
  );
  test.each(['', 'red', '2026', '20260131', '2026-02-30', '01/31/2026', '2026-1'])(
    '%j is not a datetime',
    (text) => expect(isDatetime(text)).toBe(false),
  );
});

describe('the time of an event is stored as ISO 8601 in UTC with milliseconds', () => {
  const parseAgain = (text: string, now: number) => {
    const time = parseTime(text);
    return time === undefined ? undefined : toIso(Math.min(time, now));
  };
  const times = fc
    .date({ min: new Date(-62_135_596_800_000), max: new Date(253_402_300_799_999), noInvalidDate: true })
    .map((date) => date.toISOString());

  test('unchanged texts equal the reformatted time', () => {
    const sent = fc.oneof(
      times,
      times.map((text) => `${text.slice(0, 19)}Z`),
      // With one character replaced, the text may still be a time.
      fc
        .tuple(times, fc.nat(23), fc.constantFrom(...'0123456789:.-TtZz +'))
        .map(([text, position, other]) => text.slice(0, position) + other + text.slice(position + 1)),
    );
    fc.assert(
      fc.property(sent, fc.constantFrom(noon, 253_402_300_799_999), (text, now) => {
        expect(pastIso(text, now)).toBe(parseAgain(text, now));
      }),
      { numRuns: lengthOf({ short: 1500, long: 5000 }) },
    );
  });

  test.each([
    ['2026-02-30T12:00:00.000Z', undefined],
    ['2024-02-29T12:00:00Z', '2024-02-29T12:00:00.000Z'],
    ['2026-01-31T24:00:00.000Z', '2026-01-31T12:00:00.000Z'],
    ['2026-01-31T11:60:00Z', undefined],
    ['2026-01-31T11:59:60Z', undefined],
    ['0000-12-31T12:00:00.000Z', undefined],
    ['2026-01-31T12:00:00.001Z', '2026-01-31T12:00:00.000Z'],
    ['2026-01-31T11:00:00,000Z', '2026-01-31T11:00:00.000Z'],
  ])('%s is stored as %s', (text, kept) => {
    expect(pastIso(text, noon)).toBe(kept);
  });
});
