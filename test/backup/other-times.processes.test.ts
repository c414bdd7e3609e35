import { cpSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterEach, expect, inject, test } from 'vitest';
import { type Fleet, startFleet, statusOf } from '../guarantees/fleet.ts';
import { createDatabase, startRedis, type TestRedis, temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { isLong } from '../setup/length.ts';
import { countSets, drained, OBJECTS, once, sendSet } from './counted.ts';
import { follow } from './documented.ts';

let fleet: Fleet;
afterEach(() => fleet.stop());

const begin = async () => {
  fleet = await startFleet('redis', { edges: 1, workers: 0 });
  return fleet;
};

const edge = () => fleet.edges[0]!.port;
const send = (set: string) => sendSet(edge(), fleet.workspace.key, set);

/** Sends a set and waits until it is applied; then ends the workers. */
async function sendAndApply(set: string): Promise<void> {
  await send(set);
  const worker = await fleet.startWorker();
  await drained(edge());
  await fleet.end(worker, 'SIGTERM');
}

async function endAll(): Promise<void> {
  for (const member of [...fleet.edges, ...fleet.workers]) await fleet.end(member, 'SIGTERM');
}

/** Starts an installation on the restored stores. @returns the count in /metrics once its queue is empty */
async function goOn(env: Record<string, string>): Promise<number> {
  Object.assign(fleet.env, env);
  await fleet.startEdge();
  await fleet.startWorker();
  return drained(edge());
}

/** Copies the data of Redis to a new folder; Redis keeps running. */
async function keepRedis(redis: TestRedis): Promise<string> {
  const BACKUP = temporaryFolder('penstock-backup-');
  follow('keep a running Redis', { REDIS_URL: redis.url, REDIS_DIR: redis.dir, BACKUP });
  return BACKUP;
}

async function bringRedis(BACKUP: string): Promise<string> {
  const REDIS_DIR = temporaryFolder('penstock-redis-');
  follow('bring Redis back', { REDIS_DIR, BACKUP });
  return (await startRedis({ dir: REDIS_DIR })).url;
}

/** Copies the database. No process of the fleet may be connected to it. */
async function keepPostgres(): Promise<string> {
  const copy = await createDatabase();
  await copy.drop();
  const nameOf = (url: string) => path.basename(new URL(url).pathname);
  const client = new pg.Client({ connectionString: inject('postgresUrl') });
  await client.connect();
  await client.query('select pg_terminate_backend(pid) from pg_stat_activity where datname = $1', [
    nameOf(fleet.env.DATABASE_URL!),
  ]);
  await client.query(`create database ${nameOf(copy.url)} template ${nameOf(fleet.env.DATABASE_URL!)}`);
  await client.end();
  return copy.url;
}

test('G2: a Redis older than Postgres repeats applied jobs without effect, and loses newer jobs', async () => {
  await begin();
  await sendAndApply('done');
  await send('waiting');
  const BACKUP = await keepRedis(fleet.redis!);
  await sendAndApply('later');
  await send('lost');
  await endAll();

  expect(await goOn({ REDIS_URL: await bringRedis(BACKUP) })).toBe(3 * OBJECTS);
  expect(await countSets(fleet.env.DATABASE_URL!)).toEqual({ done: once, waiting: once, later: once });
});

test('a Postgres older than Redis lacks later objects, and applies waiting ones once', async () => {
  await begin();
  await sendAndApply('done');
  await endAll();
  const DATABASE_URL = await keepPostgres();
  await fleet.startEdge();
  await sendAndApply('lost');
  await send('waiting');
  await endAll();

  expect(await goOn({ DATABASE_URL })).toBe(2 * OBJECTS);
  expect(await countSets(DATABASE_URL)).toEqual({ done: once, waiting: once });
});

// Fault 7 of test/chaos/stores covers this under load.
test.runIf(isLong)(
  'an empty Redis loses only unapplied objects; web and worker resume by themselves',
  async () => {
    await begin();
    const worker = await fleet.startWorker();
    await send('done');
    await drained(edge());
    worker.kill('SIGSTOP');
    await send('lost');
    const { port } = fleet.redis!;
    await fleet.redis!.kill();
    await startRedis({ port });
    worker.kill('SIGCONT');
    await waitUntil(async () => (await statusOf(edge(), '/readyz')) === 200, {
      what: 'the edge to be ready',
    });
    await send('afterwards');

    expect(await drained(edge())).toBe(2 * OBJECTS);
    expect(await countSets(fleet.env.DATABASE_URL!)).toEqual({ done: once, afterwards: once });
    expect(await fleet.fallen()).toEqual([]);
  },
);

// Behavior of Redis, independent of Penstock.
test.runIf(isLong)('Redis without appendonly ignores its file, as the page states', async () => {
  await begin();
  await send('waiting');
  await endAll();
  await fleet.redis!.stop();
  const dir = temporaryFolder('penstock-redis-');
  cpSync(path.join(fleet.redis!.dir, 'appendonlydir'), path.join(dir, 'appendonlydir'), { recursive: true });
  const forgetful = await startRedis({ dir, args: ['--appendonly', 'no'] });
  expect(await goOn({ REDIS_URL: forgetful.url })).toBe(0);
  expect(await countSets(fleet.env.DATABASE_URL!)).toEqual({});
});
