import type { IncomingMessage } from 'node:http';
import { expect, test } from 'vitest';
import { clientAddress } from '../../src/edge/request.ts';

const seen = (hops: number, header?: string) =>
  clientAddress(
    {
      socket: { remoteAddress: '192.0.2.1' },
      headers: header === undefined ? {} : { 'x-forwarded-for': header },
    } as IncomingMessage,
    hops,
  );

test('without a trusted proxy, X-Forwarded-For is ignored', () => {
  expect(seen(0, '10.0.0.1')).toBe('192.0.2.1');
});

test('with trusted proxies, entries of X-Forwarded-For that a client wrote are ignored', () => {
  // The proxy appends the address that it saw: 198.51.100.7.
  expect(seen(1, '10.0.0.1, 198.51.100.7')).toBe('198.51.100.7');
  expect(seen(1, '10.0.0.1,, ,198.51.100.7')).toBe('198.51.100.7');
  expect(seen(2, '10.0.0.1, 198.51.100.7, 203.0.113.9')).toBe('198.51.100.7');
});

test('the client address is unknown if a trusted proxy wrote no valid entry', () => {
  expect(seen(1)).toBeUndefined();
  expect(seen(2, '10.0.0.1')).toBeUndefined();
  expect(seen(1, '')).toBeUndefined();
  expect(seen(1, '10.0.0.1, unknown')).toBeUndefined();
  // An empty entry was written by a proxy, so entries to its left must not take its position.
  expect(seen(2, '10.0.0.1, , 203.0.113.9')).toBeUndefined();
});

test('a port after the address is ignored', () => {
  expect(seen(1, '198.51.100.7:4711')).toBe('198.51.100.7');
  expect(seen(1, '[2001:db8::1]:4711')).toBe('2001:db8::1');
  expect(seen(1, '2001:db8::1')).toBe('2001:db8::1');
});
