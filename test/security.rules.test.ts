import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../src/platform/files.ts';

const page = readFileSync(path.join(packageRoot, 'SECURITY.md'), 'utf8');

/** `test/some.test.ts` "the name of a test", as the page has them, also over the end of a line. */
const NAMED = /`(test\/[\w./-]+\.test\.ts)`\s+"((?:[^"])+)"/g;

describe('SECURITY.md', () => {
  const named = [...page.matchAll(NAMED)].map(([, file, name]) => [file!, name!.replace(/\s+/g, ' ')]);

  test.each(named)('%s has the test "%s"', (file, name) => {
    expect(existsSync(path.join(packageRoot, file!)), file).toBe(true);
    const names = readFileSync(path.join(packageRoot, file!), 'utf8').replaceAll('\\', '');
    expect(['"', "'", '`'].some((quote) => names.includes(`${quote}${name}${quote}`))).toBe(true);
  });

  test('every line of every table has its test', () => {
    const lines = page.split('\n').filter((line) => line.startsWith('|'));
    const heads = lines.filter((_, index) => lines[index + 1]?.startsWith('|---'));
    const rows = lines.filter((line) => !line.startsWith('|---') && !heads.includes(line));
    expect(rows.length).toBeGreaterThan(40);
    for (const row of rows) expect([...row.matchAll(NAMED)].length, row).toBeGreaterThan(0);
  });

  test('no test is named in any other way, which nobody would look for', () => {
    expect(page.match(/test\/[\w./-]+\.test\.ts/g)).toHaveLength(named.length + 1);
  });
});
