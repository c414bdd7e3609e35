import { expect, test } from 'vitest';
import { normalizeTimeZone } from '../../src/profile/time.ts';
import { FURTHER_TIME_ZONES, RAILS_TIME_ZONES } from '../../src/profile/time-zone-names.ts';

test.each([
  ['America/New_York', 'America/New_York'],
  ['america/new_york', 'America/New_York'],
  ['UTC', 'UTC'],
  ['Asia/Kolkata', 'Asia/Kolkata'],
  ['Asia/Calcutta', 'Asia/Calcutta'],
  ['US/Eastern', 'US/Eastern'],
  ['Europe/Kyiv', 'Europe/Kyiv'],
  ['Etc/GMT+5', 'Etc/GMT+5'],
  ['Eastern Time (US & Canada)', 'America/New_York'],
  ["Nuku'alofa", 'Pacific/Tongatapu'],
  ['Bern', 'Europe/Zurich'],
])('the time zone %s is normalized to %s', (text, zone) => {
  expect(normalizeTimeZone(text)).toBe(zone);
});

test.each([
  '',
  'Mars/Olympus',
  '+01:00',
  'GMT+1',
  'America',
  'constructor',
  '__proto__',
  'a'.repeat(1_000_000),
])('the time zone %.20s is unknown', (text) => {
  expect(normalizeTimeZone(text)).toBeUndefined();
});

test('every name in the tables is a zone that this Node knows', () => {
  for (const zone of [...FURTHER_TIME_ZONES, ...Object.keys(RAILS_TIME_ZONES)]) {
    expect(() => new Intl.DateTimeFormat('en', { timeZone: zone }), zone).not.toThrow();
  }
});

test('every zone that this Node lists is known', () => {
  for (const zone of Intl.supportedValuesOf('timeZone')) expect(normalizeTimeZone(zone)).toBe(zone);
});

test('names of Ruby on Rails do not hide an IANA name', () => {
  for (const [zone, names] of Object.entries(RAILS_TIME_ZONES)) {
    for (const name of names) expect(normalizeTimeZone(name)).toBe(zone);
  }
});
