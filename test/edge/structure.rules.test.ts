import { describe, expect, test } from 'vitest';
import { BODY_LIMITS, isTooComplex } from '../../src/edge/body.ts';

const isRefused = (text: string) => isTooComplex(Buffer.from(text));
const nested = (depth: number, open: string, close: string) => open.repeat(depth) + close.repeat(depth);
const padding = ' '.repeat(20_000);
const keys = (count: number) => Array.from({ length: count }, (_, index) => `"${index}":0`).join(',');
const many = (count: number, one: string) => `[${Array(count).fill(one).join(',')}]`;

describe('a structure that would block the process is detected before parsing', () => {
  test.each([
    ['arrays nested too deep', nested(BODY_LIMITS.depth + 1, '[', ']') + padding, true],
    ['arrays nested as deep as allowed', nested(BODY_LIMITS.depth, '[', ']') + padding, false],
    ['objects nested too deep', nested(BODY_LIMITS.depth + 1, '{"a":', '}') + padding, true],
    ['arrays that are never closed', '['.repeat(20_000), true],
    ['too many empty objects', many(BODY_LIMITS.containers, '{}'), true],
    ['as many empty objects as allowed', many(BODY_LIMITS.containers - 1, '{}'), false],
    ['an object of too many keys', `{${keys(BODY_LIMITS.keysOfOne + 1)}}`, true],
    ['an object with as many keys as allowed', `{${keys(BODY_LIMITS.keysOfOne)}}`, false],
    ['objects that have too many keys together', many(9, `{${keys(9000)}}`), true],
    ['objects with as many keys together as allowed', many(8, `{${keys(9000)}}`), false],
    ['only closing brackets', '}'.repeat(20_000), false],
    ['brackets and colons in a string', `"${'[{:'.repeat(20_000)}"`, false],
    ['after an escaped quote in a string', `"\\"${'[:'.repeat(20_000)}"`, false],
    ['after a string that ends with a backslash', `["\\\\",${'['.repeat(20_000)}`, true],
    ['a string that is never closed', `"${'['.repeat(20_000)}`, false],
    ['the largest request that fits the other rules', many(225, `{${keys(250)}}`), false],
  ])('%s', (_, text, refused) => expect(isRefused(text)).toBe(refused));
});
