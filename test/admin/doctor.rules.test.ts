import { describe, expect, test } from 'vitest';
import { type FleetNow, judgeFleet } from '../../src/admin/doctor/fleet.ts';
import { checkPostgresDisk, type Finding, judgeDisk } from '../../src/admin/doctor/machine.ts';
import { judgeBloat, judgeClock, judgePostgres } from '../../src/admin/doctor/stores.ts';
import type { SeenProcess } from '../../src/store/processes.ts';

const levels = (findings: Finding[]) => findings.map(({ level }) => level);
const worst = (findings: Finding[]) => findings.filter(({ level }) => level !== 'ok');

describe('Postgres', () => {
  const sound = {
    ...{ version: 160_004, inRecovery: false, damagedPages: 0, connections: 10, oldestTransactionSeconds: 1 },
    settings: {
      ...{ fsync: 'on', full_page_writes: 'on', synchronous_commit: 'on', autovacuum: 'on' },
      ...{ track_counts: 'on', max_connections: '100', default_transaction_read_only: 'off' },
      ...{ data_checksums: 'on', data_directory: '/data' },
    },
  };

  test('that is in order is one line with its release', () => {
    expect(judgePostgres(sound)).toEqual([
      { check: 'postgres', level: 'ok', finding: 'Postgres 16.4, settings are correct', advice: null },
    ]);
  });

  test.for([
    ['an old release', { version: 130_011 }, 'error', 'too old'],
    ['a replica', { inRecovery: true }, 'error', 'the server is read-only'],
    ['no connection to spare', { connections: 95 }, 'warning', '95 of 100'],
    ['an old transaction', { oldestTransactionSeconds: 3600 }, 'warning', '60 min'],
    ['one damaged page', { damagedPages: 1 }, 'error', 'has read 1 damaged page:'],
    ['damaged pages', { damagedPages: 2 }, 'error', 'has read 2 damaged pages:'],
  ] as const)('%s', ([, change, level, words]) => {
    const [found, ...others] = judgePostgres({ ...sound, ...change });
    expect(others).toEqual([]);
    expect(found).toMatchObject({
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
  ])('%s off', (name, level) => {
    const [found] = judgePostgres({ ...sound, settings: { ...sound.settings, [name]: 'off' } });
    expect(found).toMatchObject({ level, advice: `Set ${name} = on.` });
  });
});

test('a server without checksums is a warning that names the program and the data folder', () => {
  const health = {
    ...{ version: 160_004, inRecovery: false, damagedPages: 0, connections: 1, oldestTransactionSeconds: 1 },
    settings: { max_connections: '100', data_checksums: 'off', data_directory: '/data' },
  };
  expect(judgePostgres(health)).toEqual([
    expect.objectContaining({
      level: 'warning',
      finding: expect.stringContaining('data_checksums is off'),
      advice: expect.stringContaining('pg_checksums --enable --pgdata=/data, a program of Postgres 16.'),
    }),
  ]);
});

test('a clock is wrong by what the way of the question does not explain', () => {
  const between = { asked: 10_000, answered: 13_000 };
  expect(levels(judgeClock('Redis', 11_500, between))).toEqual(['ok']);
  expect(levels(judgeClock('Redis', 14_000, between))).toEqual(['ok']);
  expect(judgeClock('Redis', 73_000, between)[0]).toMatchObject({
    level: 'warning',
    finding: 'the clock of Redis is 60 s ahead of ours',
  });
  expect(judgeClock('Redis', 5000, between)[0]!.finding).toBe('the clock of Redis is 5 s behind ours');
});

test('a table is bloated by many dead rows that are much of it', () => {
  const table = (liveRows: number, deadRows: number) => [{ table: 'ledger', liveRows, deadRows }];
  expect(levels(judgeBloat(table(10, 1000)))).toEqual(['ok']);
  expect(levels(judgeBloat(table(10_000_000, 60_000)))).toEqual(['ok']);
  expect(judgeBloat(table(10_000, 60_000))[0]).toMatchObject({
    level: 'warning',
    advice: expect.stringContaining('vacuum analyze ledger'),
  });
});

test('the disk of a Postgres on this machine is looked at, whether it listens on a socket or on the loopback', async () => {
  for (const host of ['', '%2Fvar%2Frun%2Fpostgres', '%2fvar', 'localhost', '127.0.0.1', '[::1]'])
    expect(await checkPostgresDisk(`postgresql://${host}/penstock`, '/')).toMatchObject({
      finding: expect.stringContaining('of the disk of / is free'),
    });
  expect(await checkPostgresDisk('postgresql://db.example/penstock', '/')).toMatchObject({
    level: 'ok',
    finding: 'the disk of Postgres (db.example) cannot be checked from this machine; monitor it there',
  });
});

test('a disk is judged by the part that is free', () => {
  const disk = (freeBytes: number) => judgeDisk({ path: '/data', sizeBytes: 100e9, freeBytes });
  expect(levels([disk(50e9), disk(9e9), disk(1e9)])).toEqual(['ok', 'warning', 'error']);
  expect(disk(9e9).finding).toBe('9 % of the disk of /data is free (9 GB)');
});

describe('the fleet', () => {
  const process = (name: SeenProcess['name'], change: Partial<SeenProcess> = {}): SeenProcess => ({
    ...{ id: name, name, host: 'h', pid: 1, version: '1.0.0', address: null, lanes: [], missing: [] },
    ...{
      objects: 0,
      objectsPerSecond: 0,
      residentBytes: 1,
      loopBusy: 0,
      refused: 0,
      refusedPerSecond: 0,
      marks: null,
      held: null,
    },
    ...{ startedAt: new Date(), seenAt: new Date(), silentSeconds: 1 },
    ...change,
  });
  const well: FleetNow = {
    ...{
      processes: [process('web'), process('worker')],
      installationLanes: 1,
      installationShards: 1,
      objects: 1,
    },
    lanes: [{ lane: 'lane-0', depth: 3, oldestSeconds: 1 }],
    refused: { objects: 0, seconds: 3600 },
    ...{ deadLetters: 0, losses: 0, syncs: { unfinished: 0, failing: [] }, streams: [] },
  };

  const stream = (change: Partial<FleetNow['streams'][number]>) => ({
    ...{ workspace: 'shop', name: 'crm', lag: 400, failures: 0, lastError: null, lost: 0, ...change },
  });

  test('that is well has nothing to see', () => {
    expect(worst(judgeFleet(well, { LANES: 1 }))).toEqual([]);
  });

  test('a lane that only a silent worker has worked is named', () => {
    const silent = process('worker', { lanes: [0], silentSeconds: 60, pid: 7 });
    const lanes = [{ lane: 'lane-0', depth: 1, oldestSeconds: 25 }];
    const found = judgeFleet({ ...well, processes: [...well.processes, silent], lanes }, { LANES: 1 });
    expect(found.find(({ check }) => check === 'lanes')!.finding).toContain(
      'no worker has applied a job of this lane',
    );
  });

  test.for<[string, Partial<FleetNow>, Finding['level'], string]>([
    ['no worker', { processes: [process('web')] }, 'error', 'no worker runs'],
    [
      'a worker that is silent beside another',
      { processes: [...well.processes, process('worker', { silentSeconds: 60, pid: 7 })] },
      'warning',
      'worker (7 on h) sent its last heartbeat 60 s ago',
    ],
    [
      'one that lacks Redis',
      { processes: [process('web'), process('worker', { missing: ['redis'] })] },
      'error',
      'cannot use redis',
    ],
    [
      'two releases',
      { processes: [process('web'), process('worker', { version: '0.9.0' })] },
      'warning',
      'releases 0.9.0 and 1.0.0',
    ],
    ['another number of lanes', { installationLanes: 4 }, 'error', 'the installation has 4'],
    [
      'a lane that is stuck',
      { lanes: [{ lane: 'lane-0', depth: 3, oldestSeconds: 40 }] },
      'error',
      'the oldest of 3 jobs of lane-0 has waited for 40 s',
    ],
    [
      'a lane that no living worker holds',
      {
        processes: [
          process('web'),
          process('worker', { lanes: [1] }),
          process('worker', { lanes: [], pid: 2 }),
        ],
        lanes: [
          { lane: 'lane-0', depth: 3, oldestSeconds: 21 },
          { lane: 'lane-1', depth: 3, oldestSeconds: 21 },
          { lane: 'lane-2', depth: 0, oldestSeconds: 0 },
        ],
      },
      'error',
      '3 jobs of lane-0 has waited for 21 s, and no worker has applied a job of this lane',
    ],
    [
      'a lane that waits, and that no living worker has open',
      {
        processes: [process('web'), process('worker', { lanes: [0], held: [] })],
        lanes: [{ lane: 'lane-0', depth: 3, oldestSeconds: 40 }],
      },
      'error',
      'for 40 s, and the lane has no worker',
    ],
    [
      'lanes that no living worker has open, though nothing waits',
      {
        installationLanes: 1,
        processes: [
          process('web'),
          process('worker', { held: [] }),
          process('sync', { silentSeconds: 1, held: null }),
        ],
      },
      'warning',
      'no worker has lane-0',
    ],
    ['a loss', { losses: 1 }, 'error', 'lost'],
    ['dead letters', { deadLetters: 2 }, 'warning', '2 wait'],
    [
      'a sync that fails',
      { syncs: { unfinished: 0, failing: [{ workspace: 'shop', integration: 'orders' }] } },
      'warning',
      'orders (shop)',
    ],
    [
      'a stream that fails',
      { streams: [stream({ failures: 3, lastError: '503' })] },
      'warning',
      'in a row and is 400 s behind: 503',
    ],
    ['a stream that gives way', { streams: [stream({})] }, 'warning', 'its destination accepts messages'],
    [
      'a stream that has lost something',
      { streams: [stream({ lost: 2 })] },
      'error',
      'did not receive 2 transactions',
    ],
  ])('with %s says so, and what to do', ([, change, level, words]) => {
    const found = worst(judgeFleet({ ...well, ...change }, { LANES: 1 }));
    expect(found).toEqual([
      expect.objectContaining({ level, finding: expect.stringContaining(words), advice: expect.any(String) }),
    ]);
  });
});
