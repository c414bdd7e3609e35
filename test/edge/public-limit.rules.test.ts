import { expect, test } from 'vitest';
import { PublicLimit } from '../../src/edge/public-limit.ts';

/** Number of 300 requests that are allowed. */
const takes = (limit: PublicLimit, address: string, now = 0) =>
  Array.from({ length: 300 }, () => limit.take(address, 1, now)).filter((wait) => wait === 0).length;

test('an address has 200 requests at once and 20 a second, independent of other addresses', () => {
  const limit = new PublicLimit();
  expect(takes(limit, '192.0.2.1')).toBe(200);
  expect(limit.take('192.0.2.1', 1, 0)).toBe(1);
  expect(takes(limit, '192.0.2.2')).toBe(200);
  expect(takes(limit, '192.0.2.1', 1000)).toBe(20);
});

test('IPv6 addresses of one /64 network share a bucket', () => {
  const limit = new PublicLimit();
  expect(takes(limit, '2001:db8::1')).toBe(200);
  expect(takes(limit, '2001:db8:0:0:ffff::2')).toBe(0);
  expect(takes(limit, '2001:db8:0:1::1')).toBe(200);
});

test('all addresses together have 1,000 requests at once', () => {
  const limit = new PublicLimit();
  const all = Array.from({ length: 20 }, (_, host) => takes(limit, `192.0.2.${host}`));
  expect(all.reduce((sum, count) => sum + count)).toBe(1000);
});
