import { describe, expect, test } from 'vitest';
import { parseCount, parseDay, parseExternalId, parseId, parseName } from '../../src/admin/command.ts';
import { readIpAllowlist as parseIpAllowlist, readNames } from '../../src/resources/fields.ts';
import { permissions } from '../../src/schemas/permissions.ts';

const parsePermissions = readNames('permission', permissions, { all: true });

describe('a name', () => {
  test('is trimmed and has 1 to 255 characters', () => {
    expect(parseName(' shop ')).toBe('shop');
    expect(parseName('x'.repeat(255))).toHaveLength(255);
    for (const text of ['', '  ', 'x'.repeat(256)])
      expect(() => parseName(text)).toThrow('1 to 255 characters');
  });
});

describe('an external id', () => {
  test('is used unchanged and has 1 to 987 bytes', () => {
    for (const text of ['x', ' x ', 'é'.repeat(493)]) expect(parseExternalId(text)).toBe(text);
    for (const text of ['', 'é'.repeat(494)]) expect(() => parseExternalId(text)).toThrow('1 to 987 bytes');
  });
});

describe('a count', () => {
  test('is a whole number that Postgres can store as an integer', () => {
    expect(parseCount('1')).toBe(1);
    expect(parseCount('2147483647')).toBe(2_147_483_647);
  });

  test.each(['0', '-1', '1.5', 'many', '', ' ', '2147483648', 'Infinity', 'NaN'])('%j is invalid', (text) => {
    expect(() => parseCount(text)).toThrow('whole number from 1');
  });
});

describe('an id', () => {
  test('is a UUID in either case', () => {
    const id = '019a2f6e-6f0b-7c3e-9d5a-3f1b2c4d5e6f';
    expect(parseId(id.toUpperCase())).toBe(id);
    for (const text of ['', '7', `${id}0`]) expect(() => parseId(text)).toThrow('UUID');
  });
});

describe('a day', () => {
  test('is midnight in UTC', () => {
    expect(parseDay('2026-02-28').toISOString()).toBe('2026-02-28T00:00:00.000Z');
  });

  test.each(['2026-02-30', '2026-2-3', '1.7.2026', 'today', '2026-07-01T00:00:00Z', ''])(
    '%j is invalid',
    (text) => {
      expect(() => parseDay(text)).toThrow('YYYY-MM-DD');
    },
  );
});

describe('permissions', () => {
  test('are comma-separated names without duplicates, or all', () => {
    expect(parsePermissions('users.merge, users.track,users.merge,')).toEqual(['users.track', 'users.merge']);
    expect(parsePermissions('all')).toEqual(permissions);
    expect(new Set(permissions).size).toBe(permissions.length);
    expect(parsePermissions('users.track,all')).toEqual(permissions);
  });

  test.each(['', ',', 'users.fly', 'users.track,users.fly', 'users', 'USERS.TRACK'])(
    '%j are invalid',
    (text) => {
      expect(() => parsePermissions(text)).toThrow('The permissions are: all, users.track, ');
    },
  );
});

describe('an allowlist', () => {
  test('contains IPv4 and IPv6 addresses and subnets without duplicates', () => {
    const list = '10.0.0.0/8, 1.2.3.4,0.0.0.0/0,2001:db8::/32,::1,1.2.3.4';
    expect(parseIpAllowlist(list)).toEqual(['10.0.0.0/8', '1.2.3.4', '0.0.0.0/0', '2001:db8::/32', '::1']);
  });

  test.each([
    ...['10.0.0.0/33', '10.0.0', '1.2.3.4/', '1.2.3.4/8/8', '10.0.0.0/08', '10.0.0.0/8.0', '256.0.0.1'],
    ...['::1/129', '::1/-1', 'fe80::1%eth0', 'shop.com', '', ','],
  ])('%j is invalid', (entry) => {
    expect(() => parseIpAllowlist(entry)).toThrow('An entry must be an IP address or a subnet');
  });
});
