import fc from 'fast-check';
import { expect, test } from 'vitest';
import { exceedsJsonBytes, type Json, jsonBytesAtLeast } from '../../src/profile/json.ts';

test('the size of a value equals its JSON text in UTF-8', () => {
  fc.assert(
    fc.property(fc.jsonValue(), (value) => {
      const bytes = Buffer.byteLength(JSON.stringify(value));
      expect(exceedsJsonBytes(value as Json, bytes)).toBe(false);
      expect(exceedsJsonBytes(value as Json, bytes - 1)).toBe(true);
      expect(jsonBytesAtLeast(value as Json)).toBeLessThanOrEqual(bytes);
    }),
  );
});

test('control characters and emoji are counted as written', () => {
  for (const text of ['\u001f'.repeat(100), '👍'.repeat(100), 'é"\\'.repeat(100)]) {
    const bytes = Buffer.byteLength(JSON.stringify([text]));
    expect(exceedsJsonBytes([text], bytes)).toBe(false);
    expect(exceedsJsonBytes([text], bytes - 1)).toBe(true);
  }
});

test('a value that nests too deeply exceeds every limit', () => {
  const deep = JSON.parse('['.repeat(100_000) + ']'.repeat(100_000));
  expect(exceedsJsonBytes(deep, 1_000_000)).toBe(true);
});
