import { expect, test } from 'vitest';
import { normalizeLanguage } from '../../src/profile/locale.ts';

test.each([
  ['en', 'en'],
  ['EN', 'en'],
  ['fil', 'fil'],
  ['pt-BR', 'pt'],
  ['zh_Hant_TW', 'zh'],
  ['en_US.UTF-8', 'en'],
  ['de_DE@euro', 'de'],
])('the language %s is normalized to %s', (text, code) => {
  expect(normalizeLanguage(text)).toBe(code);
});

test.each([
  '',
  'xx',
  'english',
  '-en',
  'en-',
  'en-中国',
  'en US',
  '\u212ao',
  'to_be_translated',
  'toString',
  'e'.repeat(1_000_000),
])('the language %.20s is unknown', (text) => {
  expect(normalizeLanguage(text)).toBeUndefined();
});
