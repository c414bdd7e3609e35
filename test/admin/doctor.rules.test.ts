import { describe, expect, test } from 'vitest';
import { type Finding, readPostgresDisk } from '../../src/admin/doctor/machine.ts';
import { evaluateBloat, evaluateClock, evaluatePostgres } from '../../src/admin/doctor/stores.ts';

const levels = (findings: Finding[]) => findings.map(({ level }) => level);

describe('Postgres', () => {
  const sound = {
    ...{ version: 160_004, damagedPages: 0, oldestTransactionSeconds: 1 },
    settings: {
      ...{ fsync: 'on', full_page_writes: 'on', synchronous_commit: 'on', autovacuum: 'on' },
      ...{ track_counts: 'on', max_connections: '100', default_transaction_read_only: 'off' },
      ...{ data_checksums: 'on', data_directory: '/data' },
    },
  };

  test('with correct settings is one ok finding with its release', () => {
    expect(evaluatePostgres(sound)).toEqual([
      { check: 'postgres', level: 'ok', finding: 'Postgres 16.4, settings are correct', advice: null },
    ]);
  });

  test.for([
    ['an old release', { version: 130_011 }, 'error', 'too old'],
    ['an old transaction', { oldestTransactionSeconds: 3600 }, 'warning', '60 min'],
    ['one damaged page', { damagedPages: 1 }, 'error', 'has read 1 damaged page:'],
    ['damaged pages', { damagedPages: 2 }, 'error', 'has read 2 damaged pages:'],
  ] as const)('reports %s', ([, change, level, words]) => {
    const [first, ...others] = evaluatePostgres({ ...sound, ...change });
    expect(others).toEqual([]);
    expect(first).toMatchObject({
      level,
      finding: expect.stringContaining(words),
      advice: expect.any(String),
    });
  });

  test.each([
    ['fsync', 'error'],
    ['full_page_writes', 'error'],
    ['synchronous_commit', 'error'],
    ['autovacuum', 'warning'],
    ['track_counts', 'warning'],
  ])('reports %s = off', (name, level) => {
    const [firstMatch] = evaluatePostgres({ ...sound, settings: { ...sound.settings, [name]: 'off' } });
    expect(firstMatch).toMatchObject({ level, advice: `Set ${name} = on.` });
  });
});

test('warns without data checksums and names pg_checksums and the data folder', () => {
  const health = {
    ...{ version: 160_004, damagedPages: 0, oldestTransactionSeconds: 1 },
    settings: { max_connections: '100', data_checksums: 'off', data_directory: '/data' },
  };
  expect(evaluatePostgres(health)).toEqual([
    expect.objectContaining({
      level: 'warning',
      finding: expect.stringContaining('data_checksums is off'),
      advice: expect.stringContaining('pg_checksums --enable --pgdata=/data, a program of Postgres 16.'),
    }),
  ]);
});

test('reports a clock only if its skew exceeds the round-trip time', () => {
  const between = { sentAt: 10_000, receivedAt: 13_000 };
  expect(levels(evaluateClock('Redis', 11_500, between))).toEqual(['ok']);
  expect(levels(evaluateClock('Redis', 14_000, between))).toEqual(['ok']);
  expect(evaluateClock('Redis', 73_000, between)[0]).toMatchObject({
    level: 'warning',
    finding: 'the clock of Redis is 60 s ahead of ours',
  });
  expect(evaluateClock('Redis', 5000, between)[0]!.finding).toBe('the clock of Redis is 5 s behind ours');
});

test('reports a table as bloated if its dead rows are many in number and in proportion', () => {
  const table = (liveRows: number, deadRows: number) => [{ table: 'ledger', liveRows, deadRows }];
  expect(levels(evaluateBloat(table(10, 1000)))).toEqual(['ok']);
  expect(levels(evaluateBloat(table(10_000_000, 60_000)))).toEqual(['ok']);
  expect(evaluateBloat(table(10_000, 60_000))[0]).toMatchObject({
    level: 'warning',
    advice: expect.stringContaining('vacuum analyze ledger'),
  });
});

test('reads the disk of Postgres on this machine, on a socket or the loopback address', async () => {
  for (const host of ['', '%2Fvar%2Frun%2Fpostgres', '%2fvar', 'localhost', '127.0.0.1', '[::1]'])
    expect(await readPostgresDisk(`postgresql://${host}/penstock`, '/')).toMatchObject({
      path: '/',
      freeBytes: expect.any(Number),
    });
  expect(await readPostgresDisk('postgresql://db.example/penstock', '/')).toMatchObject({
    level: 'ok',
    finding: 'the disk of Postgres (db.example) cannot be checked from this machine; monitor it there',
  });
});
