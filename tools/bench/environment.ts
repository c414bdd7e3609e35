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

/** The servers that every contender works on. */
export interface Environment {
  /** A folder that goes away with the environment. */
  folder: string;
  postgresPid: number;
  redisPid: number;
  redisUrl: string;
  /** The address of a database, made when it is not there. */
  database(name: string): Promise<string>;
  /** The address of a collector of traces that takes and forgets them; started when it is first asked for. */
  collector(): Promise<string>;
  stop(): Promise<void>;
}

/** Every write on disk before its answer; nothing evicted; nothing else changed. */
const redisSettings = [
  '--save',
  '',
  '--appendonly',
  'yes',
  '--appendfsync',
  'always',
  '--maxmemory-policy',
  'noeviction',
  // One for each that is measured.
  '--databases',
  '32',
];

/**
 * Starts a Postgres and a Redis of the bench's own, on loopback, in a temporary folder.
 *
 * @param programs folder of Postgres's programs; those from npm unless told
 */
export async function startEnvironment(programs?: string): Promise<Environment> {
  const folder = mkdtempSync(path.join(tmpdir(), 'penstock-bench-'));
  // Postgres may run as another user, who has to pass.
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

/** A process of its own: what it takes is its own processor time, beside what is measured. */
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

/** The programs of a Postgres that lie in this folder. */
export function binariesIn(folder: string): Binaries {
  // Before 17 Postgres has no locale of its own.
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
