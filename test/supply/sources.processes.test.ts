import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../src/platform/files.ts';
import { askDatabase } from '../../tools/supply/advisories.ts';
import { productionPackages } from '../../tools/supply/packages.ts';
import { billOfMaterials } from '../../tools/supply/sbom.ts';
import { temporaryFolder } from '../setup/left-behind.ts';

const packages = productionPackages();

test('the bill of materials has exactly the production packages, and no data of this machine', () => {
  const bom = billOfMaterials();
  const named = bom.components.map((one) => one['bom-ref'].replace(/\|.*$/, ''));
  expect([...new Set(named)].sort()).toEqual(
    packages.map(({ name, version }) => `${name}@${version}`).sort(),
  );
  expect(bom.metadata.component.name).toBe('penstock');
  const text = JSON.stringify(bom);
  expect(text).not.toContain(packageRoot);
  expect(text).not.toContain(path.dirname(packageRoot));
  expect(text.match(/"type":"distribution"/g)).toBeNull();
});

test('an advisory of a database on this machine is found by name and version', () => {
  const folder = temporaryFolder('penstock-advisories-');
  const { name, version } = packages.find((one) => one.name === 'express')!;
  const write = (id: string, range: string) =>
    writeFileSync(
      path.join(folder, 'npm', name, `${id}.yml`),
      `identifier: "${id}"\nidentifiers:\n- "${id}"\ntitle: "one"\naffected_range: "${range}"\n`,
    );
  mkdirSync(path.join(folder, 'npm', name), { recursive: true });
  write('CVE-2026-1', `<=${version}`);
  write('CVE-2026-2', `<${version}||>99.0.0`);
  expect(askDatabase(folder, packages)).toEqual([
    { package: `${name} ${version}`, ids: ['CVE-2026-1'], title: 'one' },
  ]);
  expect(() => askDatabase(path.join(folder, 'none'), packages)).toThrow(/is not there/);
});
