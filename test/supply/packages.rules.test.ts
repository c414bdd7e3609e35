import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { askSnapshot, readSnapshot } from '../../tools/supply/advisories.ts';
import {
  exceptions,
  forbiddenLicences,
  isAllowed,
  packagesPage,
  productionPackages,
} from '../../tools/supply/packages.ts';

const packages = productionPackages();

test('every package of production has a licence that permits redistribution', () => {
  expect(packages.length).toBeGreaterThan(200);
  expect(forbiddenLicences(packages)).toEqual([]);
});

test('every exception belongs to a package that is still used', () => {
  const licences = new Map(packages.map(({ name, license }) => [name, license]));
  for (const [name, { license }] of Object.entries(exceptions)) expect(licences.get(name)).toBe(license);
});

test.each([
  ['MIT', true],
  ['(MIT OR GPL-3.0-only)', true],
  ['MIT AND GPL-3.0-only', false],
  ['GPL-3.0-only', false],
  ['SEE LICENSE IN LICENSE.md', false],
  ['none', false],
])('the licence %s is allowed: %s', (expression, allowed) => {
  expect(isAllowed(expression)).toBe(allowed);
});

test('installed packages have the same licence as the lock file', () => {
  const others = packages.flatMap(({ name, license, folders }) =>
    folders
      .map((folder) => path.join(packageRoot, folder, 'package.json'))
      .filter((file) => existsSync(file))
      .map((file) => JSON.parse(readFileSync(file, 'utf8')).license)
      .filter((installed) => installed !== license && !(license === 'none' && installed === undefined))
      .map((installed) => `${name}: ${license}, installed ${JSON.stringify(installed)}`),
  );
  expect(others).toEqual([]);
});

test('generated/packages.md is current: npm run generate', () => {
  expect(readFileSync(path.join(packageRoot, 'generated/packages.md'), 'utf8')).toBe(packagesPage());
});

test('docs/evidence/dependencies.md has the current counts', () => {
  const folderCount = packages.flatMap((one) => one.folders).length;
  const page = readFileSync(path.join(packageRoot, 'docs/evidence/dependencies.md'), 'utf8');
  const [, counted, of] = /npm counts (\d+) places in the lock file, of (\d+) packages/.exec(page) ?? [];
  expect([Number(counted), Number(of)]).toEqual([folderCount, packages.length]);
});

describe('the snapshot of advisories', () => {
  const snapshot = readSnapshot();
  const page = readFileSync(path.join(packageRoot, 'docs/evidence/dependencies.md'), 'utf8');

  test('covers exactly the packages of production, and the page explains every advisory', () => {
    expect(Object.keys(snapshot.packages)).toEqual([...new Set(packages.map(({ name }) => name))].sort());
    const { advisories, unknown } = askSnapshot(snapshot, packages);
    expect(unknown).toEqual([]);
    expect(advisories.filter(({ ids }) => !ids.some((id) => page.includes(id)))).toEqual([]);
  });

  test('has a date, which docs/evidence/dependencies.md has', () => {
    expect(new Date(snapshot.date).getTime()).toBeLessThan(Date.now());
    expect(page).toContain(
      `generated/advisories.json](../../generated/advisories.json) as of ${snapshot.date}`,
    );
  });

  test('contains a known advisory, and reports packages that it does not cover', () => {
    const [first] = packages;
    const ofMarked = { ...first!, name: 'marked', version: '0.3.5' };
    expect(askSnapshot(snapshot, [ofMarked]).advisories[0]).toMatchObject({ package: 'marked 0.3.5' });
    expect(askSnapshot(snapshot, [{ ...first!, name: 'unheard-of' }]).unknown).toEqual(['unheard-of']);
  });
});
