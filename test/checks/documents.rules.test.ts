import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { alertsFile, runbookPage } from '../../tools/generate/alerts.ts';

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');

test('monitoring/alerts.yml has the rules of the registry', () => {
  expect(read('monitoring/alerts.yml')).toBe(alertsFile());
});

test('docs/runbook.md has the alerts, sections and problems of the registry', () => {
  expect(read('docs/runbook.md')).toBe(runbookPage(read('docs/runbook.md')));
});
