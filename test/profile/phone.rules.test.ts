import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { normalizePhone, searchedPhone } from '../../src/profile/addresses.ts';

describe('a phone number is kept as + and digits', () => {
  test.each([
    ['that is E.164 already', '+14155552671', '+14155552671'],
    ['with punctuation', '+1 (415) 555-2671', '+14155552671'],
    ['with ten digits without +, as a number of the United States', '4155552671', '+14155552671'],
    ['of ten digits with punctuation', '(415) 555-2671', '+14155552671'],
    ['from the United Kingdom', '+442071838750', '+442071838750'],
    ['without its trunk 0', '+44 (0)20 7183 8750', '+442071838750'],
    ['of Brazil', '+55 11 5525-6325', '+551155256325'],
    ['of Canada', '+1 416 555 2010', '+14165552010'],
    ['after a prefix', 'tel:+14155552671', '+14155552671'],
    ['between invisible direction marks', '\u202a+14155552671\u202c', '+14155552671'],
  ])('%s', (_rule, text, phone) => {
    expect(normalizePhone(text)).toEqual({ phone, valid: true });
  });
});

describe('a phone number is kept but marked invalid', () => {
  test.each([
    ['that is too short', '+12345', '+12345'],
    ['with more than 15 digits', '+1415555267112345', '+1415555267112345'],
    ['with an unassigned country code', '+9991234567', '+9991234567'],
    ['of eleven digits without +, which two countries could claim', '13912345678', '13912345678'],
    ['with ten digits that are not valid in the United States', '0000000000', '+10000000000'],
    ['with a + after its digits', '12345+', '12345'],
    ['that is 0', '+0', '+0'],
  ])('%s', (_rule, text, phone) => {
    expect(normalizePhone(text)).toEqual({ phone, valid: false });
    // The second result comes from the cache.
    expect(normalizePhone(text)).toEqual({ phone, valid: false });
  });
});

test('a text without digits is not a phone number', () => {
  for (const text of ['', '+', 'n/a']) expect(normalizePhone(text)).toBeUndefined();
});

describe('a phone number in digits of another script is the number with those values', () => {
  test.each([
    ['with one full-width digit at its end', '+4930123456\uff17', '+49301234567'],
    ['with a full-width digit after its plus', '+\uff114155552671', '+14155552671'],
    ['with a full-width plus', '\uff0b14155552671', '+14155552671'],
    ['with a small plus', '\ufe6214155552671', '+14155552671'],
    ['in Arabic-Indic digits', '+٤٩٣٠١٢٣٤٥٦٧', '+49301234567'],
    ['in Persian digits', '+۹۸۲۱۸۸۷۷۶۶۵۵', '+982188776655'],
    ['in Devanagari digits', '+९१९८७६५४३२१०', '+919876543210'],
    ['in bold mathematical digits', '+\u{1d7cf}\u{1d7d2}155552671', '+14155552671'],
    ['in monospace mathematical digits', '+\u{1d7f7}\u{1d7fa}155552671', '+14155552671'],
    ['of ten Thai digits without plus', '๔๑๕๕๕๕๒๖๗๑', '+14155552671'],
  ])('%s', (_rule, text, phone) => {
    expect(normalizePhone(text)).toEqual({ phone, valid: true });
  });

  test('normalizePhone reads every decimal digit of Unicode with its numeric value', () => {
    let digits = 0;
    for (let code = 0x80; code <= 0x1ffff; code++) {
      const text = String.fromCodePoint(code);
      if (!/^\p{Nd}$/u.test(text)) continue;
      // Each set of digits begins with a 0 at the start of a run, and is complete.
      expect(normalizePhone(`${text}`)?.phone, code.toString(16)).toBe(String(digits % 10));
      digits++;
    }
    expect(digits).toBeGreaterThan(600);
  });
});

test.each([
  ['an extension', '+49 30 123456 ext. 7'],
  ['letters among its digits', '+49 30 CALL 1234'],
  ['letters after its digits', '+49 30 1234 CALL'],
  ['a superscript digit', '+4930123456\u00b2'],
  ['a circled digit', '+4930123456\u2466'],
  ['a Roman numeral', '+4930123456\u2166'],
  ['two numbers with a word between them', '030 123456 oder 030 123457'],
  ['more than 255 characters', `+49301234567${' '.repeat(250)}`],
])('normalizePhone rejects a text with %s instead of dropping it', (_rule, text) => {
  expect(normalizePhone(text)).toBeUndefined();
});

test.each([
  ['14155552003', '+14155552003'],
  ['1 (415) 555-2003', '+14155552003'],
  ['442071838750', '+442071838750'],
  ['4155552003', '+14155552003'],
  ['+14155552003', '+14155552003'],
])('a search for %s uses the number %s', (text, phone) => {
  expect(searchedPhone(text)).toEqual({ phone, valid: true });
});

test('a search for digits that are invalid also with a plus finds no valid number', () => {
  expect(searchedPhone('12345')).toEqual({ phone: '12345', valid: false });
  expect(searchedPhone('+12345')).toEqual({ phone: '+12345', valid: false });
  expect(searchedPhone('n/a')).toBeUndefined();
});

test('a normalized phone number stays the same', () => {
  fc.assert(
    fc.property(fc.stringMatching(/^\+?[0-9 ()-]{0,20}$/), (text) => {
      const first = normalizePhone(text);
      if (first?.valid) expect(normalizePhone(first.phone)).toEqual(first);
    }),
  );
});

test('numbers beyond the cache size have the same result', () => {
  for (let i = 0; i < 10_500; i++) normalizePhone(`+9998${i}`);
  expect(normalizePhone('+14155552671')).toEqual({ phone: '+14155552671', valid: true });
});

test('every text is handled without an exception', () => {
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => void normalizePhone(text)));
});
