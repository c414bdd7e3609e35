import { readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { threadTime } from '../setup/thread-time.ts';

/** Repeated parts between a prefix and a suffix, which make an expression with backtracking slow. */
const repeated = [
  'a',
  '1',
  ' ',
  '.',
  '-',
  '+',
  '@',
  'a.',
  'a@',
  '1:',
  'é',
  '\u0301',
  '/',
  '0x',
  '(',
  '1-',
  'T',
  '[',
  '"',
  '\\',
];
const around: [string, string][] = [
  ['', ''],
  ['a@', '!'],
  ['2026-01-01T', '!'],
  ['+1', '!'],
  ['a', '\n'],
];
const LENGTH = 200_000;

/** Files whose rules read one text; each rule is called with texts that it does not expect. */
const RULES = ['locale', 'addresses', 'time', 'identifier', 'values'];

test('all files with rules that read a text are tried', () => {
  const files = readdirSync(path.join(packageRoot, 'src/profile')).map((file) => file.replace('.ts', ''));
  expect(files).toEqual(expect.arrayContaining(RULES));
});

test.each(RULES)(
  'rules of %s take time proportional to the length of a text, without backtracking',
  async (file) => {
    const rules = await import(`../../src/profile/${file}.ts`);
    let tried = 0;
    for (const [name, rule] of Object.entries(rules)) {
      if (typeof rule !== 'function' || rule.length !== 1) continue;
      tried++;
      for (const [before, after] of around) {
        for (const part of repeated) {
          const text = before + part.repeat(LENGTH / part.length) + after;
          const started = threadTime();
          try {
            rule(text);
          } catch {
            // A rejection is as good as a result.
          }
          const words = `${name} of ${before}${part}${part}…${after}`;
          expect(threadTime() - started, words).toBeLessThan(1000);
        }
      }
    }
    expect(tried).toBeGreaterThan(0);
  },
  // The test measures the time of this thread, so a busy machine only makes it longer.
  120_000,
);
