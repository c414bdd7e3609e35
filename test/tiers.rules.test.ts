import { expect, test } from 'vitest';
import { isOurs, sources } from './setup/sources.ts';

/** Where a server, or a process, is started: what only the tiers above may reach. */
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

/** The way by which a test comes to one of the files, through helpers of the tests and tools; nothing if there is none. */
function wayTo(forbidden: string[], test: string): string[] | undefined {
  const byFile = new Map(sources.map((source) => [source.file, source]));
  const ways: string[][] = [[test]];
  const seen = new Set<string>();
  for (const way of ways) {
    for (const next of byFile.get(way[0]!)?.values ?? []) {
      if (forbidden.includes(next)) return [next, ...way];
      // Redis and PgBouncer are servers of the run; how they are started is their own affair.
      if (seen.has(next) || !/^(?:test|tools)\//.test(next) || startsServers.includes(next)) continue;
      seen.add(next);
      ways.push([next, ...way]);
    }
  }
  return undefined;
}

test.each(tiers)(
  'no test of the $name reaches what starts more than its tier may',
  ({ files, forbidden }) => {
    const tests = sources.filter(({ file }) => files.test(file));
    expect(tests.length).toBeGreaterThan(50);
    const wrong = tests.map(({ file }) => wayTo(forbidden, file)?.join(' < ')).filter(Boolean);
    expect(wrong).toEqual([]);
  },
);

test('helpers have hooks run for the file that calls them, not for the first one that imports them', () => {
  const wrong = sources.filter(
    ({ file, text }) =>
      file.startsWith('test/') &&
      !/\.test\.ts$|^test\/setup\/end-left-behind\.ts$/.test(file) &&
      /^(?:beforeAll|afterAll|beforeEach|afterEach)\(/m.test(text),
  );
  expect(wrong.map(({ file }) => file)).toEqual([]);
});

test('every test of processes starts one, or a server of its own', () => {
  const tests = sources.map(({ file }) => file).filter((file) => /\.processes\.test\.ts$/.test(file));
  expect(tests.filter((file) => wayTo(startsProcesses, file) === undefined)).toEqual([]);
});

test('tests and tools lease ports: one that is merely free is taken before a process listens', () => {
  const wrong = sources.filter(({ file, text }) => !isOurs(file) && /\bfree[P]ort\b/.test(text));
  expect(wrong.map(({ file }) => file)).toEqual([]);
});
