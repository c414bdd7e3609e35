import { expect, test } from 'vitest';
import { normalizeCurrency } from '../../src/profile/locale.ts';

test.each([
  ['EUR', 'EUR'],
  ['usd', 'USD'],
  ['Jpy', 'JPY'],
  ['BTC', 'BTC'],
  ['BYR', 'BYR'],
  ['BYN', 'BYN'],
  ['STN', 'STN'],
  ['ZWG', 'ZWG'],
])('the currency %s is normalized to %s', (text, code) => {
  expect(normalizeCurrency(text)).toBe(code);
});

test.each([
  '',
  'EU',
  'EURO',
  ' EUR',
  '€',
  'ZZZ',
  'ßd',
  'u\u017fd',
  '\u0131dr',
  '\uff35\uff33\uff24',
  'constructor',
])('%j is not a currency', (text) => {
  expect(normalizeCurrency(text)).toBeUndefined();
});
