import { expect, test } from 'vitest';
import { findingsOf } from '../../src/admin/doctor/findings.ts';
import { readPostgresDisk } from '../../src/admin/doctor/machine.ts';
import type { Readings } from '../../src/checks/readings.ts';
import { skewOf } from '../../src/processes/heartbeat.ts';

test('reads the disk of Postgres on this machine, on a socket or the loopback address', async () => {
  for (const host of ['', '%2Fvar%2Frun%2Fpostgres', '%2fvar', 'localhost', '127.0.0.1', '[::1]'])
    expect(await readPostgresDisk(`postgresql://${host}/penstock`, '/')).toMatchObject({
      disk: { path: '/', freeBytes: expect.any(Number) },
    });
  expect(await readPostgresDisk('postgresql://db.example/penstock', '/')).toEqual({
    unreadDisk: { host: 'db.example' },
  });
});

const readings: Readings = { at: new Date('2026-01-02T03:04:50.000Z'), queue: 'redis', lacking: [] };

const linesOf = (change: Partial<Readings>) =>
  findingsOf({ ...readings, ...change })
    .filter(({ check }) => check !== 'version')
    .map(({ check, level, finding }) => `${level} ${check}: ${finding}`);

test('prints no finding for readings that were not taken', () => {
  expect(linesOf({})).toEqual([]);
});

test('prints the normal state of each group without a problem', () => {
  const server = { name: undefined, maxmemory: 1, replicas: 2 };
  const durable = { evicts: 'noeviction', appends: 'yes', syncs: 'always' };
  const validUntil = new Date('2027-01-01T00:00:00.000Z');
  expect(
    linesOf({
      postgres: { latency: 1, used: 1, most: 100, isReadOnly: false, version: 160_004, settings: {} },
      own: { unreadable: [] },
      machine: {
        ...{ files: [], isMigrated: true, missingPartitions: [], tables: [] },
        ...{ fences: { fences: 0, seconds: 0 }, unreadDisk: { host: 'db' } },
        certificates: [{ store: 'Redis', server: 'r-1:6379', validUntil }],
        clocks: [{ store: 'Postgres', skew: 1999 }],
        redis: { servers: [{ ...server, settings: durable }], replicasWanted: 2, strayJobs: [] },
      },
    }).sort(),
  ).toEqual([
    'ok bloat: no table has many dead rows',
    'ok certificate: the certificate of Redis (r-1:6379) is valid until 2027-01-01T00:00:00.000Z',
    'ok clock: the clock of Postgres is ours',
    'ok disk: the disk of Postgres (db) cannot be checked from this machine; monitor it there',
    'ok envelopes: workers of this release can read the next jobs',
    'ok fences: no lane waits at a fence',
    'ok files: files with secrets are readable only by their owner',
    'ok migrations: Postgres has the tables of this release',
    'ok partitions: the partitions of this month and the next exist',
    'ok postgres: Postgres 16.4, settings are correct',
    'ok redis: settings and memory are correct',
    'ok replicas: 2 replicas are connected, and REDIS_WAIT_REPLICAS needs 2',
  ]);
});

test('replaces the sentence of a store by its problem, and keeps the sentences of other stores', () => {
  const clocks = [
    { store: 'Postgres', skew: 0 },
    { store: 'Redis', skew: 5000 },
  ];
  expect(linesOf({ machine: { clocks } })).toEqual([
    'ok clock: the clock of Postgres is ours',
    'warning clock: The clock of Redis is 5 s ahead of the clock of this machine (threshold 2 s).',
  ]);
});

test('prints a problem once if both the fleet and the machine evaluate its check', () => {
  const postgres = { latency: 1, used: 1, most: 100, isReadOnly: false, damagedPages: 1 };
  expect(linesOf({ postgres }).filter((line) => line.startsWith('error'))).toHaveLength(1);
});

test('the skew of a clock excludes the time of the request', () => {
  const between = { sentAt: 10_000, receivedAt: 13_000 };
  expect([11_500, 14_000, 73_000, 5000].map((now) => skewOf(now, between))).toEqual([
    ...[0, 1000, 60_000, -5000],
  ]);
});
