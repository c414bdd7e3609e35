import fc from 'fast-check';
import validator from 'validator';
import { describe, expect, test } from 'vitest';
import { normalizeEmail, normalizeStaffEmail } from '../../src/profile/addresses.ts';

test('an email address is converted to lower case', () => {
  expect(normalizeEmail('Ada.Lovelace@Example.COM')).toBe('ada.lovelace@example.com');
});

test('white space around an email address is dropped', () => {
  for (const sent of [' ada@example.com', 'ada@example.com\n', '\t\u00a0Ada@example.com \r\n']) {
    expect(normalizeEmail(sent)).toBe('ada@example.com');
  }
});

describe('an email address is accepted', () => {
  test.each([
    'ada@example.com',
    'ada+news@example.com',
    "o'brien@example.com",
    'a@b.co.uk',
    '_ada-@example.com',
    'ada@sub.domain.example.org',
    'ada@xn--mnchen-3ya.de',
    'jürgen@example.com',
    '用户@example.com',
    'a&b@example.com',
    'a/b@example.com',
    'a#b@example.com',
    'john.smith@deliver.com',
    "o'neil@olive.com",
    'ada_1@outlook.com',
    'ada+x@hotmail.co.uk',
    'ab@gmail.com',
    'user@gov.uk',
  ])('%s', (address) => {
    expect(normalizeEmail(address)).toBe(address);
  });
});

describe('an email address is rejected', () => {
  test.each([
    ['that is empty', ''],
    ['without @', 'example.com'],
    ['without a local part', '@example.com'],
    ['without a host', 'ada@'],
    ['with white space inside', 'ada lovelace@example.com'],
    ['with white space before the @', 'ada @example.com'],
    ['with a host of one label', 'ada@localhost'],
    ['with an IPv4 host', 'ada@127.0.0.1'],
    ['with an IPv6 host', 'ada@[::1]'],
    ['with consecutive dots in the host', 'ada@example..com'],
    ['with a label that starts with a hyphen', 'ada@-example.com'],
    ['with a label of 64 characters', `ada@${'a'.repeat(64)}.com`],
    ['with a top-level domain that ICANN does not have', 'ada@example.invalidtld'],
    ['with a private suffix name as top-level domain', 'ada@example.local'],
    ['with a top-level domain of digits', 'ada@example.123'],
    ['with a host that is not ASCII', 'ada@münchen.de'],
    ['whose host has a letter that lowers to ASCII', 'ada@example.com'.replace('e', '\u212A')],
    ['with a host look-alike', 'ada@\u212Aiwi.com'],
    ['whose local part has a letter that lowers to ASCII', '\u212Aate@example.com'],
    ['whose local part has such a letter after an apostrophe', "o'\u212Aane@example.com"],
    ['with an invisible character', 'ada\u200b@example.com'],
    ['with a soft hyphen', 'a\u00adda@example.com'],
    ['with a full-width @', 'ada\uff20example.com'],
    ['with a full-width dot in its host', 'ada@example\uff0ecom'],
    ['that starts with a dot', '.ada@example.com'],
    ['that ends with a dot', 'ada.@example.com'],
    ['with consecutive dots', 'ada..l@example.com'],
    ['with two @', 'ada@home@example.com'],
    ['with a quoted local part', '"ada l"@example.com'],
    ['with a local part of 65 characters', `${'a'.repeat(65)}@example.com`],
    ...[...'*?!$%^()[]{}~,;:<>\\"'].map((sign) => [`with ${sign}`, `a${sign}b@example.com`]),
    ['with a single character at gmail', 'a@gmail.com'],
    ['with a single character before the + at gmail', 'a+news@gmail.com'],
    ['with an apostrophe at a Microsoft host', "o'brien@outlook.com"],
    ['with a leading hyphen at a Microsoft host', '-ada@live.com'],
    ['with a letter beyond ASCII at a Microsoft host', 'jürgen@hotmail.de'],
    ['of great length', `${'a'.repeat(1_000_000)}@example.com`],
    ['with a host of great length', `ada@${'a.'.repeat(500_000)}com`],
  ])('%s', (_rule, address) => {
    expect(normalizeEmail(address!)).toBeUndefined();
  });
});

test('an accepted address is valid for validator, and normalizing it again keeps it', () => {
  const local = fc.string({ unit: fc.constantFrom(...'abcXYZ019_-.+\'&#/ü"* @'), maxLength: 12 });
  const host = fc.constantFrom('example.com', 'Example.co.uk', 'gmail.com', 'outlook.com', 'x.de', 'a-.com');
  fc.assert(
    fc.property(local, host, (name, domain) => {
      const address = normalizeEmail(`${name}@${domain}`);
      if (address === undefined) return;
      expect(validator.isEmail(address)).toBe(true);
      expect(normalizeEmail(address)).toBe(address);
    }),
    { numRuns: 2000 },
  );
});

test('every text is handled without an exception', () => {
  fc.assert(
    fc.property(
      fc.oneof(fc.string({ unit: 'binary' }), fc.emailAddress()),
      (text) => void normalizeEmail(text),
    ),
  );
});

describe('the address of a staff member', () => {
  test.each([
    'Ada@corp.internal',
    'ada@host.local',
    'ada@mail.example.lan',
    'a@gmail.com',
    'Ada@Example.com',
  ])('is accepted, also of a private network: %s', (address) => {
    expect(normalizeStaffEmail(address)).toBe(address.toLowerCase());
  });

  test.each([
    'ada',
    'ada@host',
    'ada@10.0.0.1',
    'ada@corp.7',
    'a b@corp.internal',
    'ada@corp..internal',
    '@a.b',
  ])('is rejected: %s', (address) => {
    expect(normalizeStaffEmail(address)).toBeUndefined();
  });
});
