import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { commandLinePage } from '../../tools/generate/command-line.ts';
import { dataModelDiagrams, dataModelPage } from '../../tools/generate/data-model.ts';
import { metricsPage } from '../../tools/generate/metrics.ts';
import { permissionsPage } from '../../tools/generate/permissions.ts';
import { rateLimitsPage } from '../../tools/generate/rate-limits.ts';
import { vendorRulesPage } from '../../tools/generate/vendor-rules.ts';

test.each([
  ['docs/command-line.md', commandLinePage],
  ['docs/metrics.md', metricsPage],
  ['docs/permissions.md', permissionsPage],
  ['docs/rate-limits.md', rateLimitsPage],
  ['docs/vendor-rules.md', vendorRulesPage],
])('%s is current: npm run generate', async (file, page) => {
  expect(readFileSync(path.join(packageRoot, file), 'utf8')).toBe(await page());
});

test('docs/data-model.md and its diagrams are current: npm run generate', () => {
  const page = readFileSync(path.join(packageRoot, 'docs/data-model.md'), 'utf8');
  expect(page).toBe(dataModelPage(page));
  const folder = path.join(packageRoot, 'docs/pictures');
  const names = readdirSync(folder).filter((name) => name.startsWith('data-model'));
  const files = new Map(names.map((name) => [name, readFileSync(path.join(folder, name), 'utf8')]));
  expect(files).toEqual(dataModelDiagrams());
});
