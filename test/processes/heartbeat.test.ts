import { existsSync, rmSync, writeFileSync } from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { packageVersion } from '../../src/platform/files.ts';
import { newId } from '../../src/platform/ids.ts';
import { startHeartbeat } from '../../src/processes/heartbeat.ts';
import { openPool, type Pool } from '../../src/store/database.ts';
import { readFleetCounters } from '../../src/store/health.ts';
import {
  beatProcess,
  type Figures,
  forgetProcesses,
  listProcesses,
  markEnded,
  readEnds,
  SILENT_SECONDS,
} from '../../src/store/processes.ts';
import { createDatabase, waitUntil } from '../setup/fixtures.ts';
import { silent } from '../workers/batch.ts';

let pool: Pool;

beforeAll(async () => {
  const { url } = await createDatabase();
  pool = openPool(url, 2);
});
beforeEach(() => pool.query('delete from processes; delete from departed_processes'));
afterAll(() => pool.end());

const figures: Figures = {
  ...{ address: '127.0.0.1:3002', lanes: [0, 3], missing: ['redis'] },
  ...{ objects: 5_000_000_000, objectsPerSecond: 1234.5, residentBytes: 5_000_000_000, loopBusy: 0.25 },
  ...{
    refused: 7,
    refusedPerSecond: 1.5,
    marks: { queue_depth: { value: 1, mark: 2, unit: 'jobs', over: false } },
    held: [{ lane: 0, since: '2026-01-02T03:04:05.000Z' }],
  },
};
const workerOn = (host: string) => ({ id: newId(), name: 'worker', host, pid: 7, version: '1.2.3' }) as const;

test('the state that a process reports is stored, and replaced by its next report', async () => {
  const one = workerOn('a');
  await beatProcess(pool, one, figures);
  const [first] = await listProcesses(pool);
  expect(first).toMatchObject({ ...one, ...figures, startedAt: first!.seenAt });
  await beatProcess(pool, one, { ...figures, lanes: [], objects: 7 });
  const [second] = await listProcesses(pool);
  expect(second).toMatchObject({ ...one, lanes: [], objects: 7, startedAt: first!.startedAt });
  expect(second!.seenAt.getTime()).toBeGreaterThan(first!.startedAt.getTime());
});

test('a silent process is listed with its seconds of silence, and removed after an hour', async () => {
  const [there, silentOne, gone] = ['a', 'b', 'c'].map(workerOn);
  for (const one of [there!, silentOne!, gone!]) await beatProcess(pool, one, figures);
  const age = (id: string, interval: string) =>
    pool.query('update processes set seen_at = now() - $2::interval where id = $1', [id, interval]);
  await age(silentOne!.id, '59 minutes');
  await age(gone!.id, '61 minutes');
  await forgetProcesses(pool);
  const left = await listProcesses(pool);
  expect(left.map(({ host, silentSeconds }) => [host, silentSeconds > SILENT_SECONDS])).toEqual([
    ['a', false],
    ['b', true],
  ]);
});

test('a page of processes has the requested length, and lists the most recent heartbeats', async () => {
  for (const host of ['c', 'b', 'a']) await beatProcess(pool, workerOn(host), figures);
  expect((await listProcesses(pool, 2)).map(({ host }) => host)).toEqual(['a', 'b']);
});

test('a running process is in the fleet, and its counts remain after it has left', async () => {
  let objects = 3;
  const marks = { queue_depth: { value: 5, mark: 100, unit: 'jobs', over: false } };
  const pulse = {
    ...{ objects: () => objects, lanes: () => [1], missing: () => [], address: () => null },
    ...{ refused: () => 2, marks: () => marks },
  };
  const id = newId();
  const heartbeat = startHeartbeat('sync', { id, pool, log: silent }, pulse);
  await expect.poll(() => listProcesses(pool)).toHaveLength(1);
  const [self] = await listProcesses(pool);
  expect(self).toMatchObject({
    id,
    name: 'sync',
    pid: process.pid,
    version: packageVersion,
    lanes: [1],
    objects: 3,
    ...{ refused: 2, marks },
  });
  expect(self!.residentBytes).toBeGreaterThan(10_000_000);
  objects = 9;
  await heartbeat.stop();
  expect(await listProcesses(pool)).toEqual([]);
  expect(await readFleetCounters(pool, 1)).toMatchObject({ accepted: 9, refused: 2 });
});

test('a process that was removed after hours of silence is counted once when it returns', async () => {
  const one = workerOn('frozen');
  const before = (await readFleetCounters(pool, 1)).accepted;
  const web = { ...one, name: 'web' as const };
  await beatProcess(pool, web, { ...figures, objects: 40, refused: 3 });
  await pool.query("update processes set seen_at = now() - interval '2 hours' where id = $1", [one.id]);
  await forgetProcesses(pool);
  expect((await readFleetCounters(pool, 1)).accepted).toBe(before + 40);
  await beatProcess(pool, web, {
    ...figures,
    objects: 42,
    refused: 3,
    previous: { objects: 40, refused: 3 },
  });
  expect((await readFleetCounters(pool, 1)).accepted).toBe(before + 42);
  await pool.query('delete from processes where id = $1', [one.id]);
});

test('a store that is away costs a process only its row', async () => {
  const away = openPool('postgres://127.0.0.1:1/away', 1);
  const pulse = { objects: () => 0, missing: () => [], address: () => null };
  const heartbeat = startHeartbeat('board', { id: newId(), pool: away, log: silent }, pulse);
  await heartbeat.stop();
  await away.end();
});

test.each([5, -5, 0])(
  'a Postgres clock that is %i s ahead is noticed by the next heartbeat',
  async (seconds) => {
    const answers = { query: async () => ({ rows: [{ now: Date.now() + seconds * 1000 }] }) };
    const pulse = { objects: () => 0, missing: () => [], address: () => null };
    const heartbeat = startHeartbeat(
      'web',
      { id: newId(), pool: answers as unknown as Pool, log: silent },
      pulse,
    );
    await expect.poll(heartbeat.clockSkew).toBeCloseTo(seconds, 1);
    await heartbeat.stop();
  },
);

test('the clock difference to a local Postgres is zero, and unknown before the first heartbeat', async () => {
  const pulse = { objects: () => 0, missing: () => [], address: () => null };
  const heartbeat = startHeartbeat('web', { id: newId(), pool, log: silent }, pulse);
  expect(heartbeat.clockSkew()).toBeUndefined();
  await expect.poll(heartbeat.clockSkew).toBeCloseTo(0, 1);
  await heartbeat.stop();
});

test('a new process ends rows of its kind and host whose pid is gone, and counts the ends', async () => {
  const gone = { ...workerOn(hostname()), pid: 2 ** 30 };
  const [killed, failed, elsewhere, living] = [
    ...[gone, { ...gone, id: newId() }, { ...gone, id: newId(), host: 'elsewhere' }],
    { ...gone, id: newId(), pid: process.ppid },
  ];
  for (const one of [killed!, failed!, elsewhere!, living!]) await beatProcess(pool, one, figures);
  writeFileSync(path.join(tmpdir(), `penstock-${failed!.id}.end`), 'out of memory');
  const pulse = { objects: () => 0, missing: () => [], address: () => null };
  const heartbeat = startHeartbeat('worker', { id: newId(), pool, log: silent }, pulse);
  await waitUntil(async () => (await readEnds(pool))[0]?.count === 2, { what: 'the ends' });
  expect(await readEnds(pool)).toEqual([
    { name: 'worker', count: 2, since: expect.any(Date), lastError: 'out of memory' },
  ]);
  expect((await listProcesses(pool)).map(({ host, pid }) => [host, pid])).toEqual(
    expect.arrayContaining([
      ['elsewhere', gone.pid],
      [hostname(), process.ppid],
      [hostname(), process.pid],
    ]),
  );
  expect(await listProcesses(pool)).toHaveLength(3);
  // A process that was marked by mistake is back with its next heartbeat.
  await beatProcess(pool, killed!, figures);
  expect(await listProcesses(pool)).toHaveLength(4);
  await heartbeat.stop();
});

test('a second replacement that finds no last error keeps the recorded one', async () => {
  const one = workerOn('a');
  await beatProcess(pool, one, figures);
  await markEnded(pool, { id: one.id, reason: 'out of memory' });
  await markEnded(pool, { id: one.id, reason: null });
  expect(await readEnds(pool)).toMatchObject([{ count: 1, lastError: 'out of memory' }]);
});

test('the file with a last error stays until the error is stored', async () => {
  const ended = newId();
  const file = path.join(tmpdir(), `penstock-${ended}.end`);
  writeFileSync(file, 'out of memory');
  let failures = 0;
  const answers = {
    async query({ name }: { name: string }) {
      if (name === 'list-same-kind') return { rows: [{ id: ended, pid: 2 ** 30 }] };
      if (name !== 'mark-process-ended') return { rows: [{ now: Date.now() }] };
      failures++;
      throw new Error('connection terminated');
    },
  };
  const pulse = { objects: () => 0, missing: () => [], address: () => null };
  const member = { id: newId(), pool: answers as unknown as Pool, log: silent };
  const heartbeat = startHeartbeat('web', member, pulse);
  await waitUntil(() => failures > 0, { what: 'the failed update' });
  await heartbeat.stop();
  expect(existsSync(file)).toBe(true);
  rmSync(file);
});
