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

test('without a trusted proxy, X-Forwarded-For says nothing', () => {
  expect(seen(0, '10.0.0.1')).toBe('192.0.2.1');
});

test('behind trusted proxies, what a client wrote into X-Forwarded-For itself is not believed', () => {
  // The proxy adds whom it saw: 198.51.100.7.
  expect(seen(1, '10.0.0.1, 198.51.100.7')).toBe('198.51.100.7');
  expect(seen(1, '10.0.0.1,, ,198.51.100.7')).toBe('198.51.100.7');
  expect(seen(2, '10.0.0.1, 198.51.100.7, 203.0.113.9')).toBe('198.51.100.7');
});

test('where a trusted proxy wrote no entry, or none that is an address, nothing is known of the client', () => {
  expect(seen(1)).toBeUndefined();
  expect(seen(2, '10.0.0.1')).toBeUndefined();
  expect(seen(1, '')).toBeUndefined();
  expect(seen(1, '10.0.0.1, unknown')).toBeUndefined();
  // An empty entry is one that a proxy wrote: what is left of it is not moved into its place.
  expect(seen(2, '10.0.0.1, , 203.0.113.9')).toBeUndefined();
});

test('a port beside the address is passed over', () => {
  expect(seen(1, '198.51.100.7:4711')).toBe('198.51.100.7');
  expect(seen(1, '[2001:db8::1]:4711')).toBe('2001:db8::1');
  expect(seen(1, '2001:db8::1')).toBe('2001:db8::1');
});
