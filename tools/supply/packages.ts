import { readFileSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';

/** A package of the lock file that is installed without development packages. */
export interface ProductionPackage {
  name: string;
  version: string;
  /** As its package.json says: an SPDX expression, as a rule. */
  license: string;
  /** Places in the lock file, one or more. */
  places: string[];
  /** It is there for some machines only, or for the command line of Prisma alone, which no process loads. */
  optional: boolean;
}

interface Locked {
  name?: string;
  version: string;
  license?: string;
  dev?: boolean;
  optional?: boolean;
  devOptional?: boolean;
}

/** All packages for production, by name and version. */
export function productionPackages(): ProductionPackage[] {
  const lock = JSON.parse(readFileSync(path.join(packageRoot, 'package-lock.json'), 'utf8'));
  const found = new Map<string, ProductionPackage>();
  for (const [place, locked] of Object.entries<Locked>(lock.packages)) {
    if (place === '' || locked.dev) continue;
    // One that stands for another, by `overrides`, says which it is.
    const name = locked.name ?? place.slice(place.lastIndexOf('node_modules/') + 'node_modules/'.length);
    const { version, license = 'none' } = locked;
    const known = found.get(`${name}@${version}`);
    if (known) known.places.push(place);
    else {
      const optional = (locked.optional || locked.devOptional) === true;
      found.set(`${name}@${version}`, { name, version, license, places: [place], optional });
    }
  }
  return [...found.values()].sort((one, other) => compare(one, other));
}

function compare(one: ProductionPackage, other: ProductionPackage): number {
  return one.name.localeCompare(other.name, 'en') || one.version.localeCompare(other.version, 'en');
}

/** What may be passed on with Penstock under Apache-2.0, and asks for no more than that its notice stays. */
const ALLOWED = new Set([
  ...['Apache-2.0', 'MIT', 'MIT-0', 'ISC', 'BSD-2-Clause', 'BSD-3-Clause', '0BSD'],
  ...['BlueOak-1.0.0', 'Unlicense', 'CC0-1.0', 'Python-2.0', 'Zlib'],
]);

/** Others, each with its reason. */
export const exceptions: Record<string, { license: string; reason: string }> = {
  '@visx/vendor': { license: 'MIT and ISC', reason: 'no SPDX expression, and both are allowed' },
  elkjs: {
    license: 'EPL-2.0',
    reason: 'comes with the command line of Prisma alone: no process loads it, the image does not have it',
  },
};

/** Whether one of the choices of an SPDX expression, `(MIT OR GPL-2.0)`, is allowed in all its parts. */
export function isAllowed(expression: string): boolean {
  const bare = expression.replace(/^\((.*)\)$/, '$1');
  return bare.split(' OR ').some((choice) => choice.split(' AND ').every((one) => ALLOWED.has(one)));
}

/** Packages whose licence is neither allowed nor an exception, as `name version: licence`. */
export function forbiddenLicences(packages: ProductionPackage[]): string[] {
  return packages
    .filter(({ name, license }) => !isAllowed(license) && exceptions[name]?.license !== license)
    .map(({ name, version, license }) => `${name} ${version}: ${license}`);
}

/** The text of generated/packages.md. */
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
