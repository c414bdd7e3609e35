import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { normalizeCountry } from '../../src/profile/locale.ts';
import { ISO_SHORT_NAMES } from './iso-short-names.ts';

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
  ['Cote d’Ivoire', 'CI'],
  [' France ', 'FR'],
  [' de ', 'DE'],
  ['Congo', 'CG'],
  ['Republic of the Congo', 'CG'],
  ['Congo - Brazzaville', 'CG'],
  ['Democratic Republic of the Congo', 'CD'],
  ['Congo, Democratic Republic of the', 'CD'],
  ['Congo (Kinshasa)', 'CD'],
  ['Viet Nam', 'VN'],
  ['Vietnam', 'VN'],
  ['Laos', 'LA'],
  ['Cabo Verde', 'CV'],
  ['Cape Verde', 'CV'],
  ['Syria', 'SY'],
  ['Moldova', 'MD'],
  ['Brunei', 'BN'],
  ['Myanmar (Burma)', 'MM'],
  ['Burma', 'MM'],
  ['Trinidad & Tobago', 'TT'],
  ['Trinidad and Tobago', 'TT'],
  ['The Bahamas', 'BS'],
  ['Bahamas, The', 'BS'],
  ['U.K.', 'GB'],
  ['U.A.E.', 'AE'],
  ['U.S. Virgin Islands', 'VI'],
  ['Virgin Islands, British', 'VG'],
  ['Saint Lucia', 'LC'],
  ['St. Lucia', 'LC'],
  ['St Lucia', 'LC'],
  ['Korea, Republic of', 'KR'],
  ['South Korea', 'KR'],
  ['North Korea', 'KP'],
  ['Macedonia', 'MK'],
  ['Swaziland', 'SZ'],
  ['Kosovo', 'XK'],
])('the country %s is normalized to %s', (text, code) => {
  expect(normalizeCountry(text)).toBe(code);
});

test('every short name of ISO 3166-1 is the country with that code', () => {
  expect(ISO_SHORT_NAMES).toHaveLength(249);
  const read = ISO_SHORT_NAMES.map(([, name]) => [normalizeCountry(name), name]);
  expect(read).toEqual(ISO_SHORT_NAMES);
});

test('every English region name of CLDR is the country with that code', () => {
  const names = new Intl.DisplayNames(['en'], { type: 'region' });
  for (const [code] of ISO_SHORT_NAMES) expect(normalizeCountry(names.of(code)!)).toBe(code);
});

describe('a text that only resembles a country is unknown', () => {
  test.each([
    ['that is empty', ''],
    ['that is not a code', 'ZZ'],
    ['that is not a name', 'Atlantis'],
    ['that several countries could mean', 'Korea'],
    ['with letters of another script after a name', 'Congo 民主'],
    ['with a letter after a name', 'Niger ч'],
    ['whose upper case is a code', 'ß'],
    ['with a dotless i', 'ıt'],
    ['that names a member of every object', 'constructor'],
    ['that names a member of every object', '__proto__'],
    ['that names a method of every object', 'toString'],
    ['of great length', 'x'.repeat(1_000_000)],
  ])('%s', (_rule, text) => {
    expect(normalizeCountry(text)).toBeUndefined();
  });
});

test('every text is handled without an exception', () => {
  fc.assert(fc.property(fc.string({ unit: 'binary' }), (text) => void normalizeCountry(text)));
});
