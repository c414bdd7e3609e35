import fc from 'fast-check';
import { expect, test } from 'vitest';
import { normalizeCountry } from '../../src/profile/locale.ts';

test.each([
  ['US', 'US'],
  ['us', 'US'],
  ['USA', 'US'],
  ['United States', 'US'],
  ['united states of america', 'US'],
  ['Australia', 'AU'],
  ['DEU', 'DE'],
  ['Germany', 'DE'],
  ['UK', 'GB'],
  ['Great Britain', 'GB'],
  ["Côte d'Ivoire", 'CI'],
  ["cote d'ivoire", 'CI'],
  [' France ', 'FR'],
])('the country %s is %s', (text, code) => {
  expect(normalizeCountry(text)).toBe(code);
});

test.each(['', 'ZZ', 'Atlantis', 'constructor', '__proto__', 'toString', 'x'.repeat(1_000_000)])(
  'the country %.20s is null, since nobody knows it',
  (text) => {
    expect(normalizeCountry(text)).toBeNull();
  },
);

test('no text makes it throw', () => {
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => void normalizeCountry(text)));
});
