import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { satisfies } from 'semver';
import { parse } from 'yaml';
import { packageRoot } from '../../src/platform/files.ts';
import type { ProductionPackage } from './packages.ts';

/** An advisory that concerns a package of production. */
export interface Advisory {
  package: string;
  /** As sources call it: CVE, GHSA. */
  ids: string[];
  title: string;
}

/** An advisory of any version of a package, as the database has it. */
interface Known {
  ids: string[];
  title: string;
  /** In npm's words. */
  affected: string;
}

/** What a database said of our packages on a day, kept in this repository. */
export interface Snapshot {
  /** Of the database: what was published later is not in it. YYYY-MM-DD. */
  date: string;
  source: string;
  /** Each package of production by its name, those without an advisory as well: they were looked up. */
  packages: Record<string, Known[]>;
}

export const SNAPSHOT = path.join(packageRoot, 'generated/advisories.json');

/** What a copy of GitLab's advisory database, a folder `npm/<package>/<id>.yml`, has of a package. */
function readKnown(npm: string, name: string): Known[] {
  const of = path.join(npm, name);
  if (!existsSync(of)) return [];
  return readdirSync(of)
    .filter((file) => file.endsWith('.yml'))
    .sort()
    .map((file) => parse(readFileSync(path.join(of, file), 'utf8')))
    .map(({ identifiers, title, affected_range }) => ({ ids: identifiers, title, affected: affected_range }));
}

function concerning({ name, version }: ProductionPackage, known: readonly Known[]): Advisory[] {
  return known
    .filter(({ affected }) => satisfies(version, affected, { includePrerelease: true }))
    .map(({ ids, title }) => ({ package: `${name} ${version}`, ids, title }));
}

/** @throws {Error} when there is no such database */
function npmOf(folder: string): string {
  const npm = path.join(folder, 'npm');
  if (!existsSync(npm)) throw new Error(`${npm} is not there: name a copy of GitLab's advisory database`);
  return npm;
}

/**
 * Looks into a copy of a database on this machine.
 * @throws {Error} when there is no such folder
 */
export function askDatabase(folder: string, packages: readonly ProductionPackage[]): Advisory[] {
  const npm = npmOf(folder);
  return packages.flatMap((one) => concerning(one, readKnown(npm, one.name)));
}

/**
 * What a copy of a database has of our packages, to be kept.
 * @param date of the copy
 * @throws {Error} when there is no such folder
 */
export function takeSnapshot(folder: string, packages: readonly ProductionPackage[], date: string): Snapshot {
  const npm = npmOf(folder);
  const names = [...new Set(packages.map(({ name }) => name))].sort();
  return {
    date,
    source: "GitLab's advisory database",
    packages: Object.fromEntries(names.map((name) => [name, readKnown(npm, name)])),
  };
}

export const readSnapshot = (): Snapshot => JSON.parse(readFileSync(SNAPSHOT, 'utf8'));

/** What the snapshot says of packages, and which it was not asked about. */
export function askSnapshot(snapshot: Snapshot, packages: readonly ProductionPackage[]) {
  return {
    advisories: packages.flatMap((one) => concerning(one, snapshot.packages[one.name] ?? [])),
    unknown: packages.filter(({ name }) => !Object.hasOwn(snapshot.packages, name)).map(({ name }) => name),
  };
}
