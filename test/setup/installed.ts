import { execFile } from 'node:child_process';
import { accessSync, constants, existsSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';

/** A program that tests need and npm does not bring. */
interface Program {
  /** Possible names of the program; Debian's name first, then those of other systems. */
  names: string[];
  /** Debian's package. */
  package: string;
  /** Description of what is missing without the program, for the error. */
  missing: string;
}

const CHROMIUM: Program = {
  names: ['chromium', 'chromium-browser', 'google-chrome'],
  package: 'chromium',
  missing: 'no browser to test with',
};
const PYTHON: Program = {
  names: ['python3'],
  package: 'python3',
  missing: 'no Python to run the examples with',
};
const PYTEST: Program = {
  names: ['pytest', 'pytest-3'],
  package: 'python3-pytest',
  missing: 'no pytest to run the examples with',
};
const GO: Program = { names: ['go'], package: 'golang-go', missing: 'no Go to run the examples with' };
const PROMTOOL: Program = {
  names: ['promtool'],
  package: 'prometheus',
  missing: 'no promtool to try the alerts and the pages of metrics with',
};
const COMPILER: Program = {
  names: ['cc', 'gcc'],
  package: 'build-essential',
  missing: 'no C compiler for the library that loses what was not synced',
};
const CURL: Program = { names: ['curl'], package: 'curl', missing: 'no curl to run the examples with' };
const JAVA: Program = {
  names: ['java'],
  package: 'default-jre-headless',
  missing: 'no Java (17 or newer) to run a Kafka broker with',
};
const MAVEN: Program = { names: ['mvn'], package: 'maven', missing: 'no Maven to fetch a Kafka broker with' };

/**
 * Finds a browser on the PATH. If there is none and it is allowed, installs one: as root, with Debian's
 * package manager.
 * @throws {Error} one line that names the package to install
 */
export const findChromium = () => find(CHROMIUM);

/** Finds Python; see `findChromium`. */
export const findPython = () => find(PYTHON);

/** Finds pytest; see `findChromium`. */
export const findPytest = () => find(PYTEST);

/** Finds Go; see `findChromium`. */
export const findGo = () => find(GO);

/** Finds a C compiler; see `findChromium`. */
export const findCompiler = () => find(COMPILER);

/** Finds curl; see `findChromium`. */
export const findCurl = () => find(CURL);

/** Finds promtool; see `findChromium`. */
export const findPromtool = () => find(PROMTOOL);

/** Finds Java; see `findChromium`. */
export const findJava = () => find(JAVA);

/** Finds Maven; see `findChromium`. */
export const findMaven = () => find(MAVEN);

const PGBOUNCER: Program = {
  names: ['pgbouncer'],
  package: 'pgbouncer',
  missing: 'no connection pooler to put before Postgres',
};

/**
 * Finds PgBouncer, or the program that `PGBOUNCER` names; see `findChromium`. Debian installs it outside of
 * most PATHs.
 */
export const findPgBouncer = async () =>
  process.env.PGBOUNCER || (existsSync(SBIN_PGBOUNCER) ? SBIN_PGBOUNCER : find(PGBOUNCER));

const SBIN_PGBOUNCER = '/usr/sbin/pgbouncer';

/** Finds a shell for which a completion exists; see `findChromium`. */
export const findShell = (name: 'bash' | 'zsh' | 'fish') =>
  find({ names: [name], package: name, missing: `no ${name} to complete words in` });

/** Finds script, which runs a program in a terminal; see `findChromium`. */
export const findScript = () =>
  find({ names: ['script'], package: 'bsdutils', missing: 'no script to make a terminal with' });

/** Programs of one version: a server, and its dump and restore. */
const NEEDED = ['initdb', 'postgres', 'pg_dump', 'pg_restore', 'createdb'];

/** Debian's folder of Postgres versions; other systems have the programs on the PATH. */
const DEBIAN = '/usr/lib/postgresql';

/**
 * Returns the folder of the newest installed Postgres with pg_dump; undefined if there is none. The npm
 * package has no
 * pg_dump, and pg_dump rejects a server of a newer version.
 */
export function findPostgresPrograms(): string | undefined {
  const versions = existsSync(DEBIAN) ? readdirSync(DEBIAN) : [];
  const folders = [
    ...versions.sort((one, other) => Number(other) - Number(one)).map((one) => path.join(DEBIAN, one, 'bin')),
    ...foldersOnPath(),
  ];
  return folders.find((folder) => NEEDED.every((name) => isExecutable(path.join(folder, name))));
}

async function find(program: Program): Promise<string> {
  const result = onPath(program.names);
  if (result) return result;
  if (process.getuid?.() === 0 && onPath(['apt-get'])) await install(program.package);
  const installed = onPath(program.names);
  if (installed) return installed;
  const name = program.package;
  throw new Error(`${program.missing}: install ${name} (on Debian: apt-get install ${name})`);
}

async function install(name: string): Promise<void> {
  const aptGet = (...args: string[]) =>
    promisify(execFile)('apt-get', ['-q', ...args], {
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
      maxBuffer: 64 * 1024 * 1024,
    });
  try {
    await aptGet('update');
    await aptGet('install', '-y', '--no-install-recommends', name);
  } catch {
    // The caller's error names the package to install.
  }
}

const foldersOnPath = () => (process.env.PATH ?? '').split(path.delimiter).filter(Boolean);

function onPath(names: string[]): string | undefined {
  return names.flatMap((name) => foldersOnPath().map((folder) => path.join(folder, name))).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
