import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { packageRoot } from '../src/platform/files.ts';

/**
 * Prints measures of the codebase with their limits, for `npm run house`. With `npm run house -- --tests`, it also measures
 * the time of the tests.
 */

/** A file with fewer lines counts as small. */
const SMALL_FILE_LINES = 60;

/** Maximum number of positional arguments of a function. */
const MAX_ARGUMENTS = 3;

const read = (file: string) => readFileSync(path.join(packageRoot, file), 'utf8');
const linesOf = (file: string) => read(file).split('\n').length - 1;

function listSources(): string[] {
  const listed = execFileSync('git', ['ls-files', 'src/*.ts', 'workers/*.ts'], {
    cwd: packageRoot,
    encoding: 'utf8',
  });
  return listed
    .trim()
    .split('\n')
    .filter((file) => existsSync(path.join(packageRoot, file)));
}

/** Returns the groups of files that import each other in a cycle. Uses Tarjan's algorithm. */
function findCycles(files: string[]): string[][] {
  const imports = new Map(files.map((file) => [file, importsOf(file).filter((to) => files.includes(to))]));
  const index = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const visit = (file: string) => {
    index.set(file, index.size);
    low.set(file, index.get(file)!);
    stack.push(file);
    for (const next of imports.get(file)!) {
      if (!index.has(next)) visit(next);
      if (stack.includes(next)) low.set(file, Math.min(low.get(file)!, low.get(next)!));
    }
    if (low.get(file) !== index.get(file)) return;
    const cycle = stack.splice(stack.indexOf(file));
    if (cycle.length > 1) cycles.push(cycle);
  };
  for (const file of files) if (!index.has(file)) visit(file);
  return cycles;
}

function importsOf(file: string): string[] {
  const specifiers = read(file).matchAll(/^(?:import|export)\b[^'";]*?\bfrom\s+'(\.[^']+)'/gm);
  return [...specifiers].map(([, to]) => path.posix.join(path.posix.dirname(file), to!));
}

/**
 * Counts functions with more than MAX_ARGUMENTS positional arguments, also in folders where biome.json turns the rule off.
 * Functions with a `biome-ignore` comment are not included: `countIgnored` counts them.
 */
function countLongSignatures(): number {
  const folder = mkdtempSync(path.join(tmpdir(), 'house-'));
  const useMaxParams = { level: 'error', options: { max: MAX_ARGUMENTS } };
  const rules = { preset: 'none', complexity: { useMaxParams } };
  writeFileSync(path.join(folder, 'biome.json'), JSON.stringify({ linter: { rules } }));
  const args = [
    ...['biome', 'lint', '--config-path', folder, '--only=complexity/useMaxParams'],
    ...['--max-diagnostics=none', '--reporter=github', 'src', 'workers'],
  ];
  const { stdout } = spawnSync('npx', args, { cwd: packageRoot, encoding: 'utf8', maxBuffer: 1e8 });
  rmSync(folder, { recursive: true });
  return (stdout.match(/^::.*useMaxParams/gm) ?? []).length;
}

/** Counts functions with a comment that disables the rule, because a library calls them with more arguments. */
function countIgnored(files: string[]): number {
  const comment = /^\s*\/\/ biome-ignore lint\/complexity\/useMaxParams:/gm;
  return files.reduce((sum, file) => sum + (read(file).match(comment) ?? []).length, 0);
}

/**
 * Matches a list of exemptions in the architecture test: files or folders to which a rule does not apply, one per line. The
 * test should have no such list.
 */
const EXEMPTIONS =
  /^const \w+(?:: [^=]+)? = (?:new (?:Map|Set)(?:<[^>]*>)?\()?\[\n(.*?)^\]\)?(?: as const)?;/gms;

function countExemptions(): number {
  const lists = [...read('test/architecture.rules.test.ts').matchAll(EXEMPTIONS)];
  return lists.reduce((sum, [, entries]) => sum + (entries!.match(/^ {2}\S/gm) ?? []).length, 0);
}

/** Returns the time of an npm script in whole seconds. NaN if the script fails. */
function secondsOf(script: string): number {
  const started = performance.now();
  const { status } = spawnSync('npm', ['run', '--silent', script], { cwd: packageRoot, stdio: 'ignore' });
  return status === 0 ? Math.round((performance.now() - started) / 1000) : Number.NaN;
}

interface Measure {
  name: string;
  value: number;
  /** Maximum value. If absent, the value is only printed. */
  limit?: number;
}

function measure(): Measure[] {
  const files = listSources();
  return [
    { name: 'source files', value: files.length, limit: 300 },
    {
      name: `of them with under ${SMALL_FILE_LINES} lines`,
      value: files.filter((file) => linesOf(file) < SMALL_FILE_LINES).length,
      limit: 80,
    },
    { name: 'lines of source', value: files.reduce((sum, file) => sum + linesOf(file), 0) },
    { name: 'import cycles', value: findCycles(files).length, limit: 0 },
    { name: 'entries of the exemption lists of the architecture test', value: countExemptions(), limit: 0 },
    {
      name: `functions with more than ${MAX_ARGUMENTS} positional arguments, without the ${countIgnored(files)} that a \`biome-ignore\` lets be`,
      value: countLongSignatures(),
      limit: 0,
    },
    { name: 'lines of README.md', value: linesOf('README.md'), limit: 110 },
    // The tests load the machine for minutes, so they run only on request.
    ...(process.argv.includes('--tests')
      ? [
          { name: 'seconds of npm run test:rules', value: secondsOf('test:rules'), limit: 20 },
          { name: 'seconds of npm test', value: secondsOf('test'), limit: 480 },
        ]
      : []),
  ];
}

const rows = measure().map(({ name, value, limit }) => {
  const kept = limit === undefined ? '' : value <= limit ? `≤ ${limit}` : `≤ ${limit}, **not kept**`;
  return `| ${name} | ${value.toLocaleString('en')} | ${kept} |`;
});
process.stdout.write(`${['| Measure | Now | Limit |', '|---|---|---|', ...rows].join('\n')}\n`);
