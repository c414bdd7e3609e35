import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

/** A package of the lock file that is installed without development packages. */
export interface ProductionPackage {
  name: string;
  version: string;
  /** Licence in its package.json, usually an SPDX expression. `none` if the package names no licence. */
  license: string;
  /** Paths of the package in the lock file, for example `node_modules/ajv`. At least one. */
  folders: string[];
  /** Whether only some machines or only the command line of Prisma need the package. No process loads that command line. */
  optional: boolean;
}

/** The members of an entry of package-lock.json that are used here. */
interface LockEntry {
  name?: string;
  version: string;
  license?: string;
  dev?: boolean;
  optional?: boolean;
  devOptional?: boolean;
}

/** Returns all production packages, sorted by name and version. */
export function productionPackages(): ProductionPackage[] {
  const lock = JSON.parse(readFileSync(path.join(packageRoot, 'package-lock.json'), 'utf8'));
  const packages = new Map<string, ProductionPackage>();
  for (const [location, entry] of Object.entries<LockEntry>(lock.packages)) {
    if (location === '' || entry.dev) continue;
    // A package that replaces another one through `overrides` has its own name in the entry.
    const name = entry.name ?? location.slice(location.lastIndexOf('node_modules/') + 'node_modules/'.length);
    const { version, license = 'none' } = entry;
    const existing = packages.get(`${name}@${version}`);
    if (existing) existing.folders.push(location);
    else {
      const optional = (entry.optional || entry.devOptional) === true;
      packages.set(`${name}@${version}`, { name, version, license, folders: [location], optional });
    }
  }
  return [...packages.values()].sort((one, other) => compare(one, other));
}

function compare(one: ProductionPackage, other: ProductionPackage): number {
  return one.name.localeCompare(other.name, 'en') || one.version.localeCompare(other.version, 'en');
}

/** Licences whose packages may be distributed with Penstock (Apache-2.0), and that require at most to keep their notice. */
const ALLOWED = new Set([
  ...['Apache-2.0', 'MIT', 'MIT-0', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', '0BSD'],
  ...['BlueOak-1.0.0', 'Unlicense', 'CC0-1.0', 'Python-2.0', 'Zlib'],
]);

/** Packages with another licence that are allowed, with the reason. */
export const exceptions: Record<string, { license: string; reason: string }> = {
  '@visx/vendor': { license: 'MIT and ISC', reason: 'no SPDX expression, and both are allowed' },
  elkjs: {
    license: 'EPL-2.0',
    reason: 'comes with the command line of Prisma alone: no process loads it, the image does not have it',
  },
};

/** Returns whether an SPDX expression, for example `(MIT OR GPL-2.0)`, has a choice that consists of allowed licences. */
export function isAllowed(expression: string): boolean {
  const bare = expression.replace(/^\((.*)\)$/, '$1');
  return bare.split(' OR ').some((choice) => choice.split(' AND ').every((licence) => ALLOWED.has(licence)));
}

/** Returns packages whose licence is not allowed and not an exception, each as `name version: licence`. */
export function forbiddenLicences(packages: ProductionPackage[]): string[] {
  return packages
    .filter(({ name, license }) => !isAllowed(license) && exceptions[name]?.license !== license)
    .map(({ name, version, license }) => `${name} ${version}: ${license}`);
}

/** Returns the text of generated/packages.md. */
export function packagesPage(): string {
  const packages = productionPackages();
  const counts = new Map<string, number>();
  for (const { license } of packages) counts.set(license, (counts.get(license) ?? 0) + 1);
  const sorted = [...counts].sort(
    ([one, some], [other, more]) => more - some || one.localeCompare(other, 'en'),
  );
  return [
    '# Packages of production',
    '',
    '<!-- Generated from package-lock.json by npm run generate. -->',
    '',
    `${packages.length} packages, as \`npm ci --omit=dev\` installs them. Those marked \`*\` are optional, are for some machines only, or come with the`,
    'command line of Prisma, which no process loads.',
    '',
    '| Licence | Packages |',
    '|---|---|',
    ...sorted.map(([license, count]) => `| ${license} | ${count} |`),
    '',
    '| Package | Version | Licence |',
    '|---|---|---|',
    ...packages.map(
      ({ name, version, license, optional }) =>
        `| ${name}${optional ? ' \\*' : ''} | ${version} | ${license} |`,
    ),
    '',
  ].join('\n');
}
