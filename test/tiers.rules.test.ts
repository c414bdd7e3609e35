import { expect, test } from 'vitest';
import { isOurs, sources } from './setup/sources.ts';

/** Files that start a server or a process. Only tests of a higher tier may reach them. */
const startsServers = ['test/setup/fixtures.ts', 'test/setup/redis.ts', 'test/setup/pgbouncer.ts'];
const startsProcesses = [
  ...['processes', 'fleet', 'npm-start', 'installed', 'postgres-on-port'].map(
    (name) => `test/setup/${name}.ts`,
  ),
  ...['src/embedded/postgres.ts', 'node:child_process'],
];
const tiers = [
  { name: 'rules', files: /\.rules\.test\.ts$/, forbidden: [...startsServers, ...startsProcesses] },
  { name: 'stores', files: /(?<!\.rules|\.processes)\.test\.ts$/, forbidden: startsProcesses },
];

/**
 * Returns the import path from a test to one of the files, through helpers and tools; undefined if there is
 * none.
 */
function wayTo(forbidden: string[], test: string): string[] | undefined {
  const byFile = new Map(sources.map((source) => [source.file, source]));
  const chains: string[][] = [[test]];
  const seen = new Set<string>();
  for (const chain of chains) {
    for (const next of byFile.get(chain[0]!)?.values ?? []) {
      if (forbidden.includes(next)) return [next, ...chain];
      // Redis and PgBouncer are shared servers of the run; the imports of their helpers do not count.
      if (seen.has(next) || !/^(?:test|tools)\//.test(next) || startsServers.includes(next)) continue;
      seen.add(next);
      chains.push([next, ...chain]);
    }
  }
  return undefined;
}

test.each(tiers)('tests of the $name reach only files that their tier may start', ({ files, forbidden }) => {
  const tests = sources.filter(({ file }) => files.test(file));
  expect(tests.length).toBeGreaterThan(50);
  const wrong = tests.map(({ file }) => wayTo(forbidden, file)?.join(' < ')).filter(Boolean);
  expect(wrong).toEqual([]);
});

test('helpers register hooks in functions, so that the calling file runs them', () => {
  const wrong = sources.filter(
    ({ file, text }) =>
      file.startsWith('test/') &&
      !/\.test\.ts$|^test\/setup\/end-left-behind\.ts$/.test(file) &&
      /^(?:beforeAll|afterAll|beforeEach|afterEach)\(/m.test(text),
  );
  expect(wrong.map(({ file }) => file)).toEqual([]);
});

test('every processes test starts a process, or a server of its own', () => {
  const tests = sources.map(({ file }) => file).filter((file) => /\.processes\.test\.ts$/.test(file));
  expect(tests.filter((file) => wayTo(startsProcesses, file) === undefined)).toEqual([]);
});

test('tests and tools lease ports, because a free port may be taken before it is used', () => {
  const wrong = sources.filter(({ file, text }) => !isOurs(file) && /\bfree[P]ort\b/.test(text));
  expect(wrong.map(({ file }) => file)).toEqual([]);
});
