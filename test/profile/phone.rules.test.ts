import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { normalizePhone } from '../../src/profile/addresses.ts';

describe('a phone number is kept as + and digits', () => {
  test.each([
    ['that is E.164 already', '+14155552671', '+14155552671'],
    ['with punctuation', '+1 (415) 555-2671', '+14155552671'],
    ['of ten digits without + as one of the United States', '4155552671', '+14155552671'],
    ['of ten digits with punctuation', '(415) 555-2671', '+14155552671'],
    ['of the United Kingdom', '+442071838750', '+442071838750'],
    ['without its trunk 0', '+44 (0)20 7183 8750', '+442071838750'],
    ['of Brazil', '+55 11 5525-6325', '+551155256325'],
    ['of Canada', '+1 416 555 2010', '+14165552010'],
    ['after a prefix', 'tel:+14155552671', '+14155552671'],
  ])('%s', (_rule, text, phone) => {
    expect(normalizePhone(text)).toEqual({ phone, valid: true });
  });
});

describe('a phone number is kept but marked invalid', () => {
  test.each([
    ['that is too short', '+12345', '+12345'],
    ['of more than 15 digits', '+1415555267112345', '+1415555267112345'],
    ['with a country code that nobody has', '+9991234567', '+9991234567'],
    ['of eleven digits without +, which two countries could claim', '13912345678', '13912345678'],
    ['of ten digits that are none of the United States', '0000000000', '+10000000000'],
    ['with a + after its digits', '12345+', '12345'],
    ['that is 0', '+0', '+0'],
  ])('%s', (_rule, text, phone) => {
    expect(normalizePhone(text)).toEqual({ phone, valid: false });
    // The second time it is remembered.
    expect(normalizePhone(text)).toEqual({ phone, valid: false });
  });
});

test('a text without digits is no phone number', () => {
  for (const text of ['', '+', 'n/a', '١٢٣']) expect(normalizePhone(text)).toBeUndefined();
});

test('a phone number that was normalised stays what it is', () => {
  fc.assert(
    fc.property(fc.stringMatching(/^\+?[0-9 ()-]{0,20}$/), (text) => {
      const first = normalizePhone(text);
      if (first?.valid) expect(normalizePhone(first.phone)).toEqual(first);
    }),
  );
});

test('more numbers than are remembered are judged alike', () => {
  for (let i = 0; i < 10_500; i++) normalizePhone(`+9998${i}`);
  expect(normalizePhone('+14155552671')).toEqual({ phone: '+14155552671', valid: true });
});

test('no text makes it throw', () => {
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => void normalizePhone(text)));
});
