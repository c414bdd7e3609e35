import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../src/platform/files.ts';

const page = readFileSync(path.join(packageRoot, 'docs/security.md'), 'utf8');

describe('docs/security.md', () => {
  const lines = page.split('\n');
  const rows = lines.filter(
    (line, index) =>
      line.startsWith('| ') && !line.startsWith('| ---') && !lines[index + 1]?.startsWith('| ---'),
  );

  test('names an existing test for every address, secret and threat', () => {
    expect(rows).not.toEqual([]);
    for (const row of rows) {
      const files = row.match(/`test\/[\w./-]+\.test\.ts`/g) ?? [];
      expect(files.length, row).toBeGreaterThan(0);
      for (const file of files)
        expect(existsSync(path.join(packageRoot, file.replaceAll('`', ''))), file).toBe(true);
    }
  });
});

test('SECURITY.md is a policy of at most 40 lines that links the threat model', () => {
  const policy = readFileSync(path.join(packageRoot, 'SECURITY.md'), 'utf8');
  expect(policy.split('\n').length).toBeLessThanOrEqual(40);
  expect(policy).toContain('](docs/security.md)');
});
