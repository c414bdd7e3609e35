import { expect, test } from 'vitest';
import { sharedBuffers } from '../../src/embedded/server.ts';

const GIGABYTE = 1024 ** 3;

test.each([
  [0.25, '128MB'],
  [1, '128MB'],
  [8, '1024MB'],
  [15.9, '2035MB'],
  [64, '2048MB'],
])('with %d GB of memory the shared buffers have %s', (gigabytes, expected) =>
  expect(sharedBuffers(gigabytes * GIGABYTE)).toBe(expected),
);

test('the default is an amount that Postgres accepts', () => expect(sharedBuffers()).toMatch(/^\d+MB$/));
