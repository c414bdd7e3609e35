import { describe, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import {
  createReach,
  type Reach,
  RefusedAddress,
  reachOf,
  reachOfSources,
} from '../../src/platform/reach.ts';

const DATABASE_URL = 'postgresql://localhost/penstock';
const production = reachOf(readConfig({ DATABASE_URL }));

function refuses(reach: Reach, host: string): boolean {
  try {
    reach.requireAllowed(host);
    return false;
  } catch (error) {
    expect(error).toBeInstanceOf(RefusedAddress);
    return true;
  }
}

const inside = [
  ...['0.0.0.0', '10.1.2.3', '100.64.0.1', '100.100.100.200', '127.0.0.1', '127.8.9.10', '169.254.169.254'],
  ...['172.16.0.1', '172.31.255.255', '192.0.0.8', '192.168.1.1', '198.18.0.1', '224.0.0.1', '239.1.1.1'],
  ...['240.0.0.1', '255.255.255.255', '::', '::1', '[::1]', 'fc00::1', 'fd00:ec2::254', 'fe80::1'],
  ...['fe80::1%eth0', 'fec0::1', 'ff02::1', '2001:db8::1', '2001::1', '64:ff9b:1::a00:1'],
];

/** Forms of an IPv4 address within an IPv6 address. */
const forms = [
  (a: string, b: string) => `::ffff:${a}:${b}`,
  (a: string, b: string) => `::${a}:${b}`,
  (a: string, b: string) => `::ffff:0:${a}:${b}`,
  (a: string, b: string) => `64:ff9b::${a}:${b}`,
  (a: string, b: string) => `2002:${a}:${b}::1`,
  (a: string, b: string) => `2a00::5efe:${a}:${b}`,
];

describe('in production by default', () => {
  test.each(inside)('%s is refused', (address) => {
    expect(refuses(production, address)).toBe(true);
  });

  test.each(forms)('an IPv6 address that leads to a private IPv4 address is refused, as %s', (form) => {
    for (const [a, b] of [
      ['a9fe', 'a9fe'],
      ['7f00', '1'],
      ['a00', '1'],
      ['c0a8', '101'],
    ] as const)
      expect(refuses(production, form(a, b)), form(a, b)).toBe(true);
    // 93.184.215.14
    expect(refuses(production, form('5db8', 'd70e'))).toBe(false);
  });

  test.each(['93.184.215.14', '172.32.0.1', '100.128.0.1', '2606:4700::1111', '[2a00:1450::200e]'])(
    '%s is allowed',
    (address) => expect(refuses(production, address)).toBe(false),
  );

  test('a name is checked by its address at connection time, as are unusual spellings', async () => {
    for (const name of ['localhost', '0x7f.1', '2130706433']) {
      const error = await new Promise((resolve) => production.lookup(name, {}, resolve));
      expect(error, name).toBeInstanceOf(RefusedAddress);
      expect(String(error)).toMatch(/which is .* REFUSED_NETWORKS refuses; ALLOWED_NETWORKS/);
    }
  });
});

test('the embedded Postgres allows this machine and its network, but no cloud metadata', () => {
  const trying = reachOf(readConfig({}));
  for (const address of ['127.0.0.1', '::1', '10.0.0.1', '192.168.1.1'])
    expect(refuses(trying, address)).toBe(false);
  for (const address of ['169.254.169.254', '::ffff:169.254.169.254', 'fd00:ec2::254', '100.100.100.200'])
    expect(refuses(trying, address)).toBe(true);
});

test('ALLOWED_NETWORKS excepts its networks, in each form of an address, and no others', () => {
  const reach = reachOf(readConfig({ DATABASE_URL, ALLOWED_NETWORKS: '10.1.0.0/16, ::1/128' }));
  for (const address of ['10.1.2.3', '::ffff:10.1.2.3', '64:ff9b::a01:203', '::1'])
    expect(refuses(reach, address), address).toBe(false);
  for (const address of ['10.2.0.1', '127.0.0.1', '2002:a02:1::1'])
    expect(refuses(reach, address), address).toBe(true);
});

test('SYNC_REFUSED_NETWORKS replaces REFUSED_NETWORKS for sources only', () => {
  const config = readConfig({ DATABASE_URL, SYNC_REFUSED_NETWORKS: '169.254.0.0/16,fe80::/10' });
  expect(refuses(reachOfSources(config), '10.0.0.1')).toBe(false);
  expect(refuses(reachOfSources(config), '169.254.169.254')).toBe(true);
  expect(refuses(reachOf(config), '10.0.0.1')).toBe(true);
  expect(refuses(reachOfSources(readConfig({ DATABASE_URL })), '10.0.0.1')).toBe(true);
  expect(refuses(reachOf(readConfig({ DATABASE_URL, REFUSED_NETWORKS: 'none' })), '127.0.0.1')).toBe(false);
});

test.each(['REFUSED_NETWORKS', 'ALLOWED_NETWORKS', 'SYNC_REFUSED_NETWORKS'])(
  'an invalid network in %s ends the process at its start with an error that names it',
  (name) => {
    expect(() => readConfig({ [name]: '10.0.0.0' })).toThrow(`${name} must be networks`);
    expect(() => readConfig({ [name]: '10.0.0.0/33' })).toThrow(
      `${name} has 10.0.0.0/33, which is not a network`,
    );
  },
);

test('words and networks can be combined', () => {
  const reach = createReach({ refused: 'metadata,8.8.8.0/24' });
  expect(['8.8.8.8', '169.254.1.1', '10.0.0.1'].map((address) => refuses(reach, address))).toEqual([
    ...[true, true, false],
  ]);
});
