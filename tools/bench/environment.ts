import { chmodSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import pg from 'pg';
import type { Binaries } from '../../src/embedded/server.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { createLog } from '../../src/platform/log.ts';
import { spawnOnLeash } from '../../test/setup/leash.ts';
import { leasePort } from '../../test/setup/ports.ts';
import { startPostgresOnPort } from '../../test/setup/postgres-on-port.ts';
import { startProcess } from './processes.ts';

/** The servers that all contenders use. */
export interface Environment {
  /** Temporary folder that is removed with the environment. */
  folder: string;
  postgresPid: number;
  redisPid: number;
  redisUrl: string;
  /** Returns the address of a database, which is created if it does not exist. */
  database(name: string): Promise<string>;
  /** Returns the address of a trace collector that discards its input. The first call starts it. */
  collector(): Promise<string>;
  stop(): Promise<void>;
}

/**
 * Redis settings: every write is on disk before its response, keys are never evicted, and the rest are
 * defaults.
 */
const redisSettings = [
  '--save',
  '',
  '--appendonly',
  'yes',
  '--appendfsync',
  'always',
  '--maxmemory-policy',
  'noeviction',
  // One database for each contender.
  '--databases',
  '32',
];

/**
 * Starts a separate Postgres and a separate Redis on the loopback address in a temporary folder.
 *
 * @param programs folder of the Postgres programs; by default the programs of the npm package
 */
export async function startEnvironment(programs?: string): Promise<Environment> {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-bench-'));
  // Postgres may run as another user, who must be able to enter the folder.
  chmodSync(folder, 0o755);
  const postgres = await startPostgresOnPort(
    path.join(folder, 'data'),
    createLog('test', 'warn'),
    programs === undefined ? undefined : binariesIn(programs),
  );
  const port = await leasePort();
  const redis = spawnOnLeash(
    ['redis-server', '--port', String(port), '--bind', '127.0.0.1', '--dir', folder, ...redisSettings],
    { stdout: 'ignore' },
  );
  const redisUrl = `redis://127.0.0.1:${port}`;
  await waitForRedis(redisUrl);
  let collector: Promise<{ url: string; stop(): Promise<void> }> | undefined;
  return {
    folder,
    postgresPid: Number(
      readFileSync(path.join(folder, 'data/postgres/postmaster.pid'), 'utf8').split('\n')[0],
    ),
    redisPid: redis.child.pid!,
    redisUrl,
    async database(name) {
      const url = new URL(postgres.url);
      const client = new pg.Client({ connectionString: postgres.url });
      await client.connect();
      const { rowCount } = await client.query('select from pg_database where datname = $1', [name]);
      if (!rowCount) await client.query(`create database ${name}`);
      await client.end();
      url.pathname = name;
      return url.href;
    },
    async collector() {
      collector ??= startCollector(folder);
      return (await collector).url;
    },
    async stop() {
      await (await collector)?.stop();
      redis.child.kill('SIGKILL');
      await redis.exit;
      await postgres.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/**
 * Starts the collector in a separate process, so that its processor time is not counted for the measured
 * processes.
 */
async function startCollector(folder: string) {
  const url = `http://127.0.0.1:${await leasePort()}`;
  const file = path.join(packageRoot, 'dist/tools/bench/collector.js');
  const process = await startProcess(
    'collector',
    file,
    { PORT: new URL(url).port },
    { folder, readyUrl: url },
  );
  return { url, stop: () => process.stop() };
}

/** Returns the Postgres programs in a folder. */
export function binariesIn(folder: string): Binaries {
  // Postgres before 17 has no builtin locale provider.
  const locale = ['--locale=C.UTF-8'];
  return { postgres: path.join(folder, 'postgres'), initdb: path.join(folder, 'initdb'), locale };
}

async function waitForRedis(url: string): Promise<void> {
  const deadline = Date.now() + 10_000;
  for (;;) {
    const redis = new Redis(url, { lazyConnect: true, retryStrategy: () => null });
    redis.on('error', () => {});
    try {
      await redis.connect();
      await redis.ping();
      return;
    } catch (error) {
      if (Date.now() > deadline) throw new Error('redis-server did not start', { cause: error });
      await sleep(50);
    } finally {
      redis.disconnect();
    }
  }
}
