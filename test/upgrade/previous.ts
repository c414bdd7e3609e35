import { execFileSync, spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { packageRoot } from '../../src/platform/files.ts';
import { temporaryFolder } from '../setup/left-behind.ts';
import { previous } from './migration-rules.ts';

/** Files of the previous release that its processes need; the rest of its checkout is not extracted. */
const FILES = [
  'package.json',
  'tsconfig.json',
  'tsconfig.build.json',
  'prisma.config.ts',
  'prisma',
  'src',
  'workers',
];

/** Parts that run: compiled code, migrations, and files that the code reads. */
const RUNS = ['package.json', 'prisma', 'dist', 'src'];

/**
 * Returns a sentence that explains why the history is missing here and how to get it; undefined if it is
 * present.
 */
export function whyNoHistory(): string | undefined {
  const probe = spawnSync('git', ['cat-file', '-e', `${previous.commit}^{commit}`], { cwd: packageRoot });
  if (probe.status === 0) return undefined;
  const reason = probe.error
    ? 'git is not installed'
    : `this checkout does not have commit ${previous.commit}`;
  return (
    `not tried beside release ${previous.version}: ${reason}. ` +
    'A tarball has no history and a shallow clone not enough of it: take a clone, or run git fetch --unshallow'
  );
}

/** Reads one file of the previous release. */
export function readPrevious(file: string): string {
  return execFileSync('git', ['show', `${previous.commit}:${file}`], {
    cwd: packageRoot,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'ignore'],
  });
}

/** Returns the names of its migrations, in order. */
export function previousMigrations(): string[] {
  const listed = execFileSync(
    'git',
    ['ls-tree', '--name-only', '-d', previous.commit, 'prisma/migrations/'],
    {
      cwd: packageRoot,
      encoding: 'utf8',
    },
  );
  return listed
    .trim()
    .split('\n')
    .map((name) => path.posix.basename(name))
    .sort();
}

/**
 * Compiles the previous release, unless that has been done: from the repository's own history, with the
 * packages of this
 * checkout, kept in node_modules/.cache by its commit.
 * @returns the folder of its `dist`
 * @throws {Error} if it has other dependencies than this release, which then have to be installed for it
 */
export function buildPrevious(): string {
  const kept = path.join(packageRoot, 'node_modules/.cache/previous-release', previous.commit);
  if (existsSync(kept)) return path.join(kept, 'dist');
  requireSamePackages();
  const folder = temporaryFolder('penstock-previous-');
  const archive = execFileSync('git', ['archive', previous.commit, ...FILES], {
    cwd: packageRoot,
    maxBuffer: 256 * 1024 * 1024,
  });
  execFileSync('tar', ['-x', '-C', folder], { input: archive });
  symlinkSync(path.join(packageRoot, 'node_modules'), path.join(folder, 'node_modules'));
  const run = (command: string, ...words: string[]) =>
    execFileSync(path.join(packageRoot, 'node_modules/.bin', command), words, {
      cwd: folder,
      stdio: 'pipe',
      env: { ...process.env, CHECKPOINT_DISABLE: '1' },
    });
  run('prisma', 'generate', '--no-hints');
  run('tsc', '-p', 'tsconfig.build.json', '--noCheck');
  const half = `${kept}.${process.pid}`;
  mkdirSync(half, { recursive: true });
  for (const name of RUNS) cpSync(path.join(folder, name), path.join(half, name), { recursive: true });
  // Two simultaneous runs build the same, so the second one's result is not needed.
  if (existsSync(kept)) rmSync(half, { recursive: true });
  else renameSync(half, kept);
  return path.join(kept, 'dist');
}

/**
 * Throws unless this release has the packages of the previous one in the same major version; development
 * packages count too.
 */
function requireSamePackages(): void {
  const { dependencies: then } = JSON.parse(readPrevious('package.json')) as Manifest;
  const { dependencies, devDependencies, optionalDependencies } = JSON.parse(
    readFileSync(path.join(packageRoot, 'package.json'), 'utf8'),
  ) as Manifest & Record<'devDependencies' | 'optionalDependencies', Record<string, string>>;
  const now = { ...devDependencies, ...optionalDependencies, ...dependencies };
  const majorOf = (version = '') => version.split('.')[0];
  const names = Object.keys(then).filter((name) => majorOf(then[name]) !== majorOf(now[name]));
  if (names.length === 0) return;
  throw new Error(
    `release ${previous.version} has other dependencies (${names.join(', ')}): buildPrevious has to run npm ci for it`,
  );
}

interface Manifest {
  dependencies: Record<string, string>;
}
