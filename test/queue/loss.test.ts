import { readdirSync, rmSync, statSync, truncateSync } from 'node:fs';
import path from 'node:path';
import type { Pool } from 'pg';
import { v7 as uuidv7 } from 'uuid';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { readConfig } from '../../src/platform/config.ts';
import { createLog } from '../../src/platform/log.ts';
import { openQueue } from '../../src/queue/bullmq-queues.ts';
import { connectProducer } from '../../src/queue/connection.ts';
import { joinInstallation } from '../../src/queue/installation.ts';
import { Redis } from '../../src/queue/ioredis.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { laneName } from '../../src/queue/lanes.ts';
import { additionsOf } from '../../src/queue/loss.ts';
import type { Database } from '../../src/store/database.ts';
import { openDatabase } from '../../src/store/open-database.ts';
import { confirmLosses } from '../../src/store/queue-losses.ts';
import { createDatabase, startRedis, type TestRedis, waitUntil } from '../setup/fixtures.ts';

const nothing = { requests: [], objects: [] };

let databaseUrl: string;
let redis: TestRedis;
let pool: Pool;
let prisma: Database['prisma'];
let stopPool: () => Promise<void>;
let left: (() => Promise<void>)[];
beforeEach(async () => {
  databaseUrl = (await createDatabase()).url;
  redis = await startRedis();
  ({ pool, prisma, stop: stopPool } = openDatabase(databaseUrl, 2));
  left = [];
});
afterEach(async () => {
  for (const end of left) await end();
  await stopPool();
  await redis.kill();
});

/** A process, reduced to its use of the queue. */
async function open(name: string) {
  const config = readConfig({ DATABASE_URL: databaseUrl, REDIS_URL: redis.url, QUEUE_TIMEOUT_MS: '10000' });
  const database = openDatabase(databaseUrl, 2);
  const connection = connectProducer(config, databaseUrl);
  await waitUntil(connection.ready, { what: 'Redis' });
  const errors: string[] = [];
  const log = createLog('test', 'silent');
  log.error = (_: unknown, message?: unknown) => void errors.push(String(message));
  const producer = createLaneProducer(connection, { timeout: config.QUEUE_TIMEOUT_MS, log });
  let losses = 0;
  const installation = await joinInstallation({
    ...{ name, config, pool: database.pool, connection, log, additions: producer.additions },
    onLoss: () => losses++,
  });
  const disconnect = async () => {
    await producer.stop().catch(() => {});
    await connection.stop();
    await database.stop();
  };
  const end = async () => {
    left.splice(left.indexOf(end), 1);
    await disconnect();
  };
  left.push(end);
  return {
    installation,
    errors,
    losses: () => losses,
    /** Ends the process like kill -9, without cleaning up. */
    end,
    /** Ends the process like SIGTERM. */
    async leave() {
      await installation.stop();
      await end();
    },
    add: (count: number) =>
      waitUntil(
        async () => {
          for (; count > 0; count--) await producer.add([{ lane: 0, id: uuidv7(), envelope: nothing }]);
          return true;
        },
        { what: 'envelopes to be added' },
      ),
    detectedLoss: () => waitUntil(() => installation.loss(), { what: `${name} to say what was lost` }),
  };
}

const remembered = async () => {
  const { rows } = await pool.query('select additions, drained from installation');
  return rows[0] as { additions: number; drained: boolean };
};

const rowsOf = async () => (await pool.query('select * from queue_losses order by id')).rows;

async function restartEmpty(): Promise<void> {
  await redis.kill();
  rmSync(path.join(redis.dir, 'appendonlydir'), { recursive: true });
  redis = await startRedis({ port: redis.port, dir: redis.dir });
}

/** The file that Redis appends to. */
function appendOnlyFile(): string {
  const folder = path.join(redis.dir, 'appendonlydir');
  return path.join(folder, readdirSync(folder).find((name) => name.endsWith('.incr.aof'))!);
}

async function restartTruncated(size: number): Promise<void> {
  await redis.kill();
  truncateSync(appendOnlyFile(), size);
  redis = await startRedis({ port: redis.port, dir: redis.dir });
}

async function applyAll(): Promise<void> {
  const config = readConfig({ DATABASE_URL: databaseUrl, REDIS_URL: redis.url });
  const connection = connectProducer(config, databaseUrl);
  await waitUntil(connection.ready, { what: 'Redis' });
  const queue = openQueue(connection, laneName(0));
  await queue.drain();
  await queue.close();
  await connection.stop();
}

test('after a kill of all processes and an empty Redis, each starting process reports the loss', async () => {
  const before = new Date().toISOString();
  const web = await open('web');
  await web.add(3);
  await waitUntil(async () => (await remembered()).additions === 3, { what: 'the additions to be seen' });
  await web.end();
  await restartEmpty();
  for (const name of ['web', 'worker', 'board', 'sync']) {
    const process = await open(name);
    const loss = await process.detectedLoss();
    expect(loss).toMatchObject({ losses: 1, found: 'empty' });
    expect(process.errors).toHaveLength(1);
    expect(process.errors[0]).toMatch(/^Redis came back empty.*penstock queue confirm-loss 1/);
    // The three objects were accepted between these two times.
    const from = Date.parse(loss.acceptedFrom);
    expect(from).toBeLessThan(Date.parse(before) + 2000);
    expect(from).toBeGreaterThan(Date.parse(before) - 60_000);
    expect(Date.parse(loss.acceptedUntil)).toBeGreaterThan(Date.parse(before));
  }
  expect(await rowsOf()).toMatchObject([{ additions_known: 3, additions_found: 0 }]);
});

test('all running processes report an emptied Redis, and the loss is recorded once', async () => {
  const [web, worker] = [await open('web'), await open('worker')];
  await web.add(1);
  const operator = new Redis(redis.url);
  await operator.flushall();
  operator.disconnect();
  await Promise.all([web.detectedLoss(), worker.detectedLoss()]);
  await waitUntil(() => web.losses() + worker.losses() === 2, { what: 'both to begin anew' });
  expect(await rowsOf()).toMatchObject([{ found: 'empty' }]);
  await web.add(2);
  await web.leave();
  await worker.leave();
  expect(await rowsOf()).toHaveLength(1);
});

test('a process that starts after Redis was emptied reports the loss', async () => {
  const web = await open('web');
  await web.add(1);
  // A regular stop, with a job that waits.
  await web.leave();
  await restartEmpty();
  const worker = await open('worker');
  expect(await worker.detectedLoss()).toMatchObject({ found: 'empty' });
});

test('a Redis that lost the end of its append-only file is reported', async () => {
  const web = await open('web');
  await web.add(5);
  const size = statSync(appendOnlyFile()).size;
  await web.add(5);
  await waitUntil(async () => (await remembered()).additions === 10, { what: 'the additions to be seen' });
  await web.end();
  await restartTruncated(size);
  const worker = await open('worker');
  expect(await worker.detectedLoss()).toMatchObject({ found: 'behind' });
  expect(worker.errors[0]).toMatch(/^Redis came back with less than it held/);
  expect(await rowsOf()).toMatchObject([{ additions_known: 10, additions_found: 5 }]);
});

test('a process detects the loss of its own additions that no check has recorded', async () => {
  const web = await open('web');
  await web.add(5);
  await waitUntil(async () => (await remembered()).additions === 5, { what: 'the additions to be seen' });
  const size = statSync(appendOnlyFile()).size;
  // Too soon after the last check to be recorded.
  await web.add(1);
  await restartTruncated(size);
  // The count immediately exceeds the lost one.
  await web.add(3);
  expect(await web.detectedLoss()).toMatchObject({ found: 'behind' });
});

test('a new installation, a new process or a restarted Redis raises no alarm', async () => {
  const web = await open('web');
  await web.add(2);
  await redis.kill();
  redis = await startRedis({ port: redis.port, dir: redis.dir });
  await web.add(2);
  const worker = await open('worker');
  await waitUntil(async () => (await remembered()).additions === 4, { what: 'the additions to be seen' });
  await web.end();
  const next = await open('web');
  await next.add(1);
  await waitUntil(async () => (await remembered()).additions === 5, { what: 'the additions to be seen' });
  expect(await rowsOf()).toEqual([]);
  expect([web, worker, next].flatMap(({ errors }) => errors)).toEqual([]);
});

test('a Redis replaced after it was drained and all processes had stopped raises no alarm', async () => {
  const [web, worker] = [await open('web'), await open('worker')];
  await web.add(3);
  await web.leave();
  await applyAll();
  await worker.leave();
  expect(await remembered()).toEqual({ additions: 3, drained: true });
  await restartEmpty();
  const [next, another] = [await open('web'), await open('worker')];
  await next.add(1);
  await waitUntil(async () => (await remembered()).additions === 1, { what: 'the new Redis to be known' });
  expect(await rowsOf()).toEqual([]);
  expect([...next.errors, ...another.errors]).toEqual([]);
});

test('a loss is reported even from a drained queue if a process was killed', async () => {
  const [web, worker] = [await open('web'), await open('worker')];
  await web.add(3);
  await applyAll();
  await web.end();
  await worker.leave();
  expect(await remembered()).toEqual({ additions: 3, drained: true });
  await restartEmpty();
  expect(await (await open('worker')).detectedLoss()).toMatchObject({ found: 'empty' });
});

test('a loss is reported until an operator confirms it', async () => {
  const web = await open('web');
  await web.add(1);
  await web.end();
  await restartEmpty();
  const worker = await open('worker');
  const { latest } = await worker.detectedLoss();
  const next = await open('web');
  await next.detectedLoss();
  await prisma.$transaction((tx) => confirmLosses(tx, latest));
  await waitUntil(() => !worker.installation.loss() && !next.installation.loss(), { what: 'silence' });
  expect(worker.errors).toHaveLength(1);
});

test('an addition is counted in its own transaction, and a refused one is not acknowledged', async () => {
  const web = await open('web');
  await web.add(4);
  const operator = new Redis(redis.url);
  expect(await operator.get(additionsOf(0))).toBe('4');
  // The first add fails without the scripts, stores no job, and is repeated.
  await operator.script('FLUSH');
  await web.add(1);
  expect(Number(await operator.get(additionsOf(0)))).toBeGreaterThanOrEqual(5);
  expect(await operator.llen('{penstock}:lane-0:wait')).toBeGreaterThanOrEqual(5);
  operator.disconnect();
});
