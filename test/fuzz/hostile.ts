import fc from 'fast-check';
import { RawJson } from './raw-json.ts';

/** Texts that have broken services before. */
export const hostileTexts = [
  '',
  ' ',
  '\u0000',
  'a\u0000b',
  '\ud800',
  'x\udfffx',
  '\ufeffx',
  '\u202eabc',
  '__proto__',
  'constructor',
  'prototype',
  'toString',
  'hasOwnProperty',
  'null',
  'undefined',
  'true',
  'NaN',
  '-0',
  '1e309',
  '9007199254740993',
  '9'.repeat(400),
  "'; drop table profiles; --",
  '$1',
  '$.a.b',
  '{{7*7}}',
  '{% for i in (1..100000000) %}x{% endfor %}',
  '%',
  '%%',
  '%00',
  '\\',
  '"',
  '../../../etc/passwd',
  'user@example.com',
  `${'a'.repeat(300)}@example.com`,
  `${'a@'.repeat(100)}example.com`,
  '+15551234567',
  `+${'1'.repeat(300)}`,
  '2026-01-31T12:00:00Z',
  '2026-02-30T25:61:61Z',
  '9999-12-31T23:59:59+99:99',
  '-271821-04-20T00:00:00Z',
  `${'('.repeat(2000)}${')'.repeat(2000)}`,
  `${'not '.repeat(500)}userName eq "a"`,
  'userName eq "a" and (emails[type eq "work"])',
  '0'.repeat(36),
  '019c13ec-a2e2-7c24-9a1e-7d30b4f0c2e1',
  'ffffffff-ffff-ffff-ffff-ffffffffffff',
  '💥'.repeat(300),
  'x'.repeat(1000),
  'x'.repeat(20_000),
];

export const hostileText = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...hostileTexts) },
  { weight: 2, arbitrary: fc.string({ unit: 'binary', maxLength: 40 }) },
  { weight: 1, arbitrary: fc.string({ maxLength: 300 }) },
);

const raw = (text: string) => new RawJson(text);

/** Numbers that JSON can express and JavaScript cannot. */
const hostileNumbers = [
  ...['1e309', '-1e309', '-0', '-0.0', '1e-400', '9007199254740993', '0.1e1', '1E+2'].map(raw),
  raw('9'.repeat(400)),
  raw(`1.${'1'.repeat(5000)}`),
  ...[0, -1, 1.5, 2 ** 31, 2 ** 53, -(2 ** 63), 1e21, 1e300, 5e-324],
];

const deep = (depth: number) => raw(`${'['.repeat(depth)}${']'.repeat(depth)}`);
const deepObject = (depth: number) => raw(`${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`);

function manyKeys(count: number): RawJson {
  return raw(`{${Array.from({ length: count }, (_, index) => `"k${index}":${index}`).join(',')}}`);
}

/** Values that cost a parser or a traversal much time; requests with one are rare. */
export const heavy = [
  () => deep(10_000),
  () => deepObject(10_000),
  () => manyKeys(100_000),
  () => raw(`[${'0,'.repeat(200_000)}0]`),
  () => raw(`[${'{},'.repeat(100_000)}{}]`),
  () => raw('7'.repeat(100_000)),
  () => raw(`"${'y'.repeat(1_000_000)}"`),
  () => raw(`"${'\\u0000'.repeat(100_000)}"`),
  () => raw(`"${'\\ud800'.repeat(100_000)}"`),
];

/** Generates a value that may replace any other one. */
export const hostileValue: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 40, arbitrary: hostileText },
  { weight: 20, arbitrary: fc.constantFrom<unknown>(...hostileNumbers) },
  { weight: 15, arbitrary: fc.constantFrom<unknown>(null, true, false, [], {}, [[]], [null], { a: {} }) },
  {
    weight: 10,
    arbitrary: fc.constantFrom<unknown>(
      raw('{"__proto__":{"polluted":true}}'),
      raw('{"constructor":{"prototype":{"polluted":true}}}'),
      raw('{"a":1,"a":2}'),
      raw('{"toString":1,"valueOf":2,"hasOwnProperty":3,"toJSON":4}'),
      raw('{"inc":1e309}'),
      raw('{"add":[[[]]],"remove":{"a":null},"update":[{"$identifier_key":"__proto__"}]}'),
      raw('{"$add":[{}],"$update":[{}],"$remove":[{}]}'),
      raw('{"length":1000000000}'),
      deep(60),
      deepObject(60),
      deep(600),
      raw('"\\u0000"'),
      raw('"\\ud800\\ud800"'),
    ),
  },
  { weight: 10, arbitrary: fc.jsonValue({ maxDepth: 4 }) },
  { weight: 1, arbitrary: fc.constantFrom(...heavy).map((make) => make()) },
);
