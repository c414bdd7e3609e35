import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { satisfies } from 'semver';
import { parse } from 'yaml';
import { packageRoot } from '../../src/platform/files.ts';
import type { ProductionPackage } from './packages.ts';

/** An advisory that affects the version of a production package. */
export interface Advisory {
  package: string;
  /** Identifiers of the advisory, for example its CVE and GHSA numbers. */
  ids: string[];
  title: string;
}

/** An advisory for any version of a package, as stored in the database. */
interface StoredAdvisory {
  ids: string[];
  title: string;
  /** Affected versions, as a version range of npm. */
  affected: string;
}

/** The advisories of a database for our packages at one date. The repository contains one snapshot. */
export interface Snapshot {
  /** Date of the database, as YYYY-MM-DD. Later advisories are missing. */
  date: string;
  source: string;
  /** Advisories by package name. An empty list shows that the database has no advisory for the package. */
  packages: Record<string, StoredAdvisory[]>;
}

export const SNAPSHOT = path.join(packageRoot, 'generated/advisories.json');

/** Reads the advisories for a package from the files `<package>/<id>.yml` in the folder `npm` of GitLab's database. */
function readAdvisories(npm: string, name: string): StoredAdvisory[] {
  const folder = path.join(npm, name);
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .filter((file) => file.endsWith('.yml'))
    .sort()
    .map((file) => parse(readFileSync(path.join(folder, file), 'utf8')))
    .map(({ identifiers, title, affected_range }) => ({ ids: identifiers, title, affected: affected_range }));
}

/** Returns the advisories that affect the version of a package. */
function selectAffecting(
  { name, version }: ProductionPackage,
  stored: readonly StoredAdvisory[],
): Advisory[] {
  return stored
    .filter(({ affected }) => satisfies(version, affected, { includePrerelease: true }))
    .map(({ ids, title }) => ({ package: `${name} ${version}`, ids, title }));
}

/** Returns the folder `npm` of a database. @throws {Error} if it does not exist */
function npmFolderOf(folder: string): string {
  const npm = path.join(folder, 'npm');
  if (!existsSync(npm)) throw new Error(`${npm} is not there: name a copy of GitLab's advisory database`);
  return npm;
}

/**
 * Returns the advisories that affect the packages, from a copy of the database on this machine.
 * @throws {Error} if the folder is not a copy of the database
 */
export function askDatabase(folder: string, packages: readonly ProductionPackage[]): Advisory[] {
  const npm = npmFolderOf(folder);
  return packages.flatMap((entry) => selectAffecting(entry, readAdvisories(npm, entry.name)));
}

/**
 * Creates a snapshot of the advisories for the packages from a copy of the database.
 * @param date date of the copy, as YYYY-MM-DD
 * @throws {Error} if the folder is not a copy of the database
 */
export function takeSnapshot(folder: string, packages: readonly ProductionPackage[], date: string): Snapshot {
  const npm = npmFolderOf(folder);
  const names = [...new Set(packages.map(({ name }) => name))].sort();
  return {
    date,
    source: "GitLab's advisory database",
    packages: Object.fromEntries(names.map((name) => [name, readAdvisories(npm, name)])),
  };
}

export const readSnapshot = (): Snapshot => JSON.parse(readFileSync(SNAPSHOT, 'utf8'));

/** Returns the advisories that affect the packages, and the names of packages that the snapshot does not cover. */
export function askSnapshot(snapshot: Snapshot, packages: readonly ProductionPackage[]) {
  return {
    advisories: packages.flatMap((entry) => selectAffecting(entry, snapshot.packages[entry.name] ?? [])),
    unknown: packages.filter(({ name }) => !Object.hasOwn(snapshot.packages, name)).map(({ name }) => name),
  };
}
