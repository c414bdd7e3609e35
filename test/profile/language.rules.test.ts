import { expect, test } from 'vitest';
import { normalizeLanguage } from '../../src/profile/locale.ts';

test.each([
  ['en', 'en'],
  ['EN', 'en'],
  ['fil', 'fil'],
  ['pt-BR', 'pt'],
  ['zh_Hant_TW', 'zh'],
])('the language %s is %s', (text, code) => {
  expect(normalizeLanguage(text)).toBe(code);
});

test.each(['', 'xx', 'english', '-en', 'toString', 'e'.repeat(1_000_000)])(
  'the language %.20s is unknown',
  (text) => {
    expect(normalizeLanguage(text)).toBeUndefined();
  },
);
