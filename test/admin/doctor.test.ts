import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { beforeAll, describe, expect, test } from 'vitest';
import type { Finding } from '../../src/admin/doctor/findings.ts';
import { newId } from '../../src/platform/ids.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { openPool } from '../../src/store/database.ts';
import { beatProcess, type ProcessName } from '../../src/store/processes.ts';
import { addRefusedObjects } from '../../src/store/refused-objects.ts';
import { createDestination, setDestinationState } from '../../src/store/stream-destinations.ts';
import { appendLog } from '../../src/store/stream-log.ts';
import {
  createBareDatabase,
  createDatabase,
  createDatabaseOfOne,
  startRedis,
  temporaryFolder,
} from '../setup/fixtures.ts';
import { isAboutOnePostgres } from '../setup/nodes.ts';
import { leasePort } from '../setup/ports.ts';
import { entriesOf } from '../setup/stream-entries.ts';
import { createWorkspace } from '../setup/workspace.ts';
import { penstock, penstockOn } from './penstock.ts';

let url: string;
let redis: string;

beforeAll(async () => {
  ({ url } = await createDatabase());
  redis = (await startRedis()).url;
});

const figures = {
  ...{ address: '127.0.0.1:3002', lanes: [0], missing: [], objects: 42, objectsPerSecond: 7 },
  ...{ residentBytes: 90_000_000, loopBusy: 0.5, refused: 0, refusedPerSecond: 0, marks: null, held: null },
};

/** Writes a heartbeat for each of the processes and removes all others. */
async function tellOf(databaseUrl: string, ...names: ProcessName[]): Promise<void> {
  const pool = openPool(databaseUrl, 1);
  await pool.query('insert into installation (lanes) values (1) on conflict do nothing');
  await pool.query('delete from processes');
  for (const name of names)
    await beatProcess(pool, { id: newId(), name, host: 'h', pid: 7, version: '1.0.0' }, figures);
  await pool.end();
}

/** Findings that each test expects, because the test Postgres runs with these settings off. */
const OF_TESTS = /^(fsync|full_page_writes|autovacuum) is off: /;

async function examine(env: Record<string, string>) {
  const folder = temporaryFolder();
  const { code, stdout, stderr } = await penstock(['doctor', '--json'], { DATA_DIR: folder, ...env });
  expect(stderr).toBe('');
  const printed = JSON.parse(stdout) as { healthy: boolean; findings: Finding[] };
  expect(printed.healthy).toBe(code === 0);
  return {
    careless: printed.findings.filter(({ finding }) => OF_TESTS.test(finding)),
    errors: printed.findings.filter(({ level, finding }) => level === 'error' && !OF_TESTS.test(finding)),
    of: (check: string) => printed.findings.filter((one) => one.check === check),
  };
}

describe('penstock doctor', () => {
  // Exit code 0 is tested with npm start, whose Postgres writes to disk.
  test('reports no errors for a healthy installation except the Postgres test settings', async () => {
    await tellOf(url, 'web', 'worker');
    const { careless, errors, of } = await examine({ DATABASE_URL: url, REDIS_URL: redis });
    expect(errors).toEqual([]);
    if (!isAboutOnePostgres('a Citus is the one that CITUS_URL names, as it is run'))
      expect(careless).toHaveLength(3);
    for (const check of [
      'migrations',
      'partitions',
      'fences',
      'bloat',
      'clock',
      'lanes',
      'processes',
      'files',
    ])
      expect(of(check)[0]).toMatchObject({ level: 'ok' });
  });

  test('prints each problem with its first step and exits with 1', async () => {
    const ofOne = (await createDatabaseOfOne()).url;
    await tellOf(ofOne, 'web');
    const { code, stdout } = await penstockOn(ofOne, { REDIS_URL: redis }).run('doctor');
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /^FAIL {2}processes {5}No worker is running\.\n {20}Start one: .*[\s\S]*\n\n3 errors, \d+ warnings?\n$/m,
    );
  });

  test('doctor warns about an empty INTEGRATION_KEY in the production form only', async () => {
    const INTEGRATION_KEY = 'A'.repeat(43).concat('=');
    const warned = { level: 'warning', finding: expect.stringMatching(/^INTEGRATION_KEY is empty/) };
    const production = { DATABASE_URL: 'postgresql://penstock@127.0.0.1:1/penstock' };
    expect((await examine(production)).of('settings')).toMatchObject([warned]);
    expect((await examine({ ...production, INTEGRATION_KEY })).of('settings')).toMatchObject([
      { level: 'ok' },
    ]);
    expect((await examine({})).of('settings')).toMatchObject([{ level: 'ok' }]);
  });

  test('names an invalid setting and runs no other check', async () => {
    const { errors } = await examine({ PORT: 'eighty' });
    expect(errors).toEqual([
      expect.objectContaining({
        check: 'settings',
        finding: expect.stringContaining('PORT'),
        advice: expect.any(String),
      }),
    ]);
  });

  test('reports a pooler in transaction mode without DATABASE_DIRECT_URL', async () => {
    const pooled = `${url}${url.includes('?') ? '&' : '?'}pooling=transaction`;
    const reported = async (env: Record<string, string>) =>
      (await examine({ DATABASE_URL: pooled, REDIS_URL: redis, ...env }))
        .of('postgres')
        .filter(({ id }) => id === 'direct-address-missing')
        .map(({ level }) => level);
    expect(await reported({})).toEqual(['warning']);
    expect(await reported({ DATABASE_DIRECT_URL: url })).toEqual([]);
  });

  test('names an unreadable sslrootcert, and checks no store', async () => {
    const secured = `${url}${url.includes('?') ? '&' : '?'}sslmode=verify-full&sslrootcert=/nowhere`;
    const { errors, of } = await examine({ DATABASE_URL: secured, REDIS_URL: redis });
    expect(errors).toEqual([
      expect.objectContaining({
        check: 'certificate',
        finding: expect.stringContaining('/nowhere'),
        advice: expect.stringContaining('sslrootcert'),
      }),
    ]);
    expect([of('postgres'), of('redis')]).toEqual([[], []]);
  });

  test('names DATABASE_URL and the reason, not the password, if Postgres is unavailable', async () => {
    const away = `postgresql://p:secret@127.0.0.1:${await leasePort()}/penstock`;
    const { errors } = await examine({ DATABASE_URL: away });
    expect(errors).toEqual([
      expect.objectContaining({
        check: 'postgres',
        finding: expect.stringContaining('ECONNREFUSED'),
        advice: expect.stringContaining('DATABASE_URL'),
      }),
    ]);
    expect(JSON.stringify(errors)).not.toContain('secret');
  });

  test('names REDIS_URL if Redis is unavailable, and still checks Postgres', async () => {
    await tellOf(url, 'web', 'worker');
    const { errors, of } = await examine({
      DATABASE_URL: url,
      REDIS_URL: `redis://127.0.0.1:${await leasePort()}`,
    });
    expect(errors).toEqual([
      expect.objectContaining({ check: 'queue', advice: expect.stringContaining('REDIS_URL') }),
    ]);
    expect(of('partitions')[0]).toMatchObject({ level: 'ok' });
  });

  test('reports a Redis that evicts keys or does not persist them', async () => {
    const weak = await startRedis({
      args: ['--maxmemory-policy', 'allkeys-lru', '--appendonly', 'no'],
    });
    await tellOf(url, 'web', 'worker');
    const { errors, of } = await examine({ DATABASE_URL: url, REDIS_URL: weak.url });
    expect(errors).toEqual([
      expect.objectContaining({ check: 'redis', finding: expect.stringContaining('allkeys-lru') }),
    ]);
    expect(of('redis').map(({ level }) => level)).toContain('warning');
  });

  test('reports missing tables with the command that creates them, and missing partitions', async () => {
    const bare = await createBareDatabase();
    const without = await examine({ DATABASE_URL: bare.url, REDIS_URL: redis });
    expect(without.errors).toEqual([
      expect.objectContaining({ check: 'migrations', advice: expect.stringContaining('penstock migrate') }),
    ]);
    await migrate(bare.url);
    const client = new pg.Client({ connectionString: bare.url });
    await client.connect();
    const month = new Date().toISOString().slice(0, 7).replace('-', '_');
    await client.query(`drop table events_${month}`);
    await client.end();
    const { of } = await examine({ DATABASE_URL: bare.url, REDIS_URL: redis });
    expect(of('partitions')[0]).toMatchObject({
      level: 'error',
      finding: `Missing partition: events_${month}.`,
    });
  });

  test('reports files with secrets that others can read, with the chmod command', async () => {
    const folder = temporaryFolder();
    const file = path.join(folder, 'password');
    writeFileSync(file, 'x', { mode: 0o600 });
    expect(
      (await examine({ DATABASE_URL: url, REDIS_URL: redis, DATA_DIR: folder })).of('files')[0]!.level,
    ).toBe('ok');
    chmodSync(file, 0o644);
    const { of } = await examine({ DATABASE_URL: url, REDIS_URL: redis, DATA_DIR: folder });
    expect(of('files')).toEqual([
      expect.objectContaining({ level: 'error', advice: `Run \`chmod 600 ${file}\`.` }),
    ]);
  });
});

test('penstock doctor and penstock status report a lagging stream but not a paused one', async () => {
  const pool = openPool(url, 1);
  const workspace = 'behind';
  const { id: workspaceId } = await createWorkspace(pool, workspace);
  const make = async (name: string) => {
    const one = { workspaceId, id: newId() };
    const settings = { url: 'https://receiver.example' };
    await createDestination(pool, { ...one, name, kind: 'webhook', settings, secret: null });
    return one;
  };
  await make('crm');
  await setDestinationState(pool, await make('halted'), 'paused');
  const entry = { workspaceId, kind: 'i' as const, profileId: newId(), id: newId(), detail: {} };
  const tenMinutesAgo = new Date(Date.now() - 600_000).toISOString();
  await appendLog(pool as never, entriesOf([entry]), tenMinutesAgo);
  const { of } = await examine({ DATABASE_URL: url, REDIS_URL: redis });
  expect(of('streams')).toEqual([
    expect.objectContaining({
      level: 'warning',
      finding: expect.stringMatching(/^The stream crm \(behind\) is 10 min/),
    }),
  ]);
  const { streams } = await penstockOn(url, { REDIS_URL: redis }).json('status');
  expect(streams).toEqual([
    expect.objectContaining({ workspace, name: 'crm', failures: 0, lost_rows: 0, last_error: null }),
  ]);
  await pool.query('delete from stream_destinations');
  await pool.end();
});

describe('penstock status', () => {
  test('prints processes, lanes and rates as JSON', async () => {
    await tellOf(url, 'web', 'worker');
    expect(await penstockOn(url, { REDIS_URL: redis }).json('status')).toMatchObject({
      processes: [
        { name: 'web', host: 'h', pid: 7, version: '1.0.0', objects: 42, alive: true },
        { name: 'worker', lanes: [0], resident_bytes: 90_000_000 },
      ],
      installation_lanes: 1,
      lanes: [
        // Only workers are listed, although the heartbeat of web has a lane too.
        { lane: 'lane-0', depth: 0, oldest_seconds: 0, worked_by: [{ host: 'h', pid: 7, version: '1.0.0' }] },
      ],
      ...{ accepted_per_second: 7, applied_per_second: 7, dead_letters: 0, losses: 0 },
      ...{ refused_per_second: 0, refused_objects: 0, refused_seconds: expect.any(Number) },
      syncs: { unfinished: 0, failing: [] },
      streams: [],
    });
  });

  test('fits on one screen and shows problems first', async () => {
    await tellOf(url, 'worker');
    const { code, stdout, stderr } = await penstockOn(url, { REDIS_URL: redis }).run('status');
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(
      /^! No web is running\. Clients get no answer\.\n\nprocess +host +pid .*\nworker +h +7 +1\.0\.0 +well +0 +7 +90 +50 /,
    );
    expect(stdout).toMatch(/^lane-0 +0 +0 s +h 7 \(1\.0\.0\)$/m);
    expect(stdout).toContain('accepted 0/s, applied 7/s');
    expect(stdout).toMatch(/^refused objects 0\/s \(0 within \d+ min\)$/m);
    expect(stdout.split('\n').length).toBeLessThan(24);
  });

  test('counts the objects that web refused in the current and the previous hour', async () => {
    const pool = openPool(url, 1);
    const id = newId();
    const names = { reason: 'required', field: 'name', operation: 'users.track', inputArray: 'events' };
    await addRefusedObjects(pool, [
      {
        ...{ workspaceId: id, hour: new Date(Date.now() - 1_800_000), ...names, keyId: id },
        ...{ objects: 7200, lastRequestId: id, sampleRequestId: id, sample: undefined },
      },
    ]);
    const now = await penstockOn(url, { REDIS_URL: redis }).json('status');
    expect(now).toMatchObject({ refused_objects: 7200 });
    // The period is at least one hour and less than two.
    expect(now.refused_per_second).toBeGreaterThanOrEqual(1);
    expect(now.refused_per_second).toBeLessThanOrEqual(2);
    await pool.query('delete from refused_objects');
    await pool.end();
  });

  test('workers shows the lanes per worker with start and backlog, spares and unassigned lanes', async () => {
    await tellOf(url);
    const pool = openPool(url, 1);
    const since = new Date(Date.now() - 300_000).toISOString();
    const [earlier, later] = ['2026-01-02T03:04:05.000Z', since];
    const holdings = [[[0, earlier]], [[0, later]], []] as [number, string][][];
    for (const [pid, lanes] of holdings.entries()) {
      const held = lanes.map(([lane, taken]) => ({ lane, since: taken }));
      const self = { id: newId(), name: 'worker' as const, host: 'h', pid, version: '1.0.0' };
      await beatProcess(pool, self, { ...figures, held });
    }
    const command = penstockOn(url, { REDIS_URL: redis });
    // The worker that took the lane last has it. The other one was killed, or will notice the loss.
    expect(await command.json('workers')).toEqual({
      installation_lanes: 1,
      workers: [
        expect.objectContaining({ pid: 0, alive: true, spare: true, lanes: [] }),
        expect.objectContaining({
          ...{ pid: 1, version: '1.0.0', spare: false, started_at: expect.any(String) },
          lanes: [{ lane: 0, since, depth: 0, oldest_seconds: 0 }],
        }),
        expect.objectContaining({ pid: 2, spare: true }),
      ],
      lanes_nobody_works: [],
    });
    expect((await command.run('workers')).stdout).toMatch(/^h 1 +1\.0\.0 +works +0 +5 min +0 +0 s$/m);
    await pool.query("update processes set held = '[]'");
    await pool.end();
    expect((await command.run('workers')).stdout).toMatch(/^! no worker has lanes 0\n\nworker /);
  });

  test('shows processes while the queue is unavailable', async () => {
    const { stdout } = await penstockOn(url, { REDIS_URL: `redis://127.0.0.1:${await leasePort()}` }).run(
      'status',
    );
    expect(stdout).toContain('! Redis does not answer. Requests are refused with 503.\n');
    expect(stdout).toContain('worker');
  });
});
