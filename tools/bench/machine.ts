import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import pg from 'pg';
import { packageRoot } from '../../src/platform/files.ts';

export interface Machine {
  cores: number;
  processor: string;
  memory_gb: number;
  system: string;
  versions: Record<string, string>;
  postgres_settings: Record<string, string>;
  redis_settings: string;
}

const packages = ['express', 'bullmq', 'ioredis', 'pg', '@prisma/client'];

const postgresSettings = [
  ...['fsync', 'synchronous_commit', 'full_page_writes', 'wal_compression', 'wal_sync_method'],
  ...['shared_buffers', 'max_wal_size', 'checkpoint_timeout', 'autovacuum'],
];

/** Describes the machine, the versions and the settings of a measurement. */
export async function describeMachine(databaseUrl: string): Promise<Machine> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  const { rows } = await client.query<{ name: string; value: string }>(
    'select name, current_setting(name) as value from unnest($1::text[]) as name',
    [postgresSettings],
  );
  const version = await client.query<{ server_version: string }>('show server_version');
  const compiled = await client.query<{ flags: string }>(
    "select setting as flags from pg_config where name = 'CFLAGS'",
  );
  await client.end();
  const redis = execFileSync('redis-server', ['--version'], { encoding: 'utf8' });
  return {
    cores: os.availableParallelism(),
    processor: os.cpus()[0]?.model ?? 'unknown',
    memory_gb: Math.round(os.totalmem() / 2 ** 30),
    system: `${os.type()} ${os.release()} ${os.arch()}`,
    versions: {
      node: process.versions.node,
      postgres: version.rows[0]!.server_version,
      redis: /v=(\S+)/.exec(redis)?.[1] ?? redis.trim(),
      ...Object.fromEntries(packages.map((name) => [name, versionOf(name)])),
    },
    postgres_settings: {
      ...Object.fromEntries(rows.map(({ name, value }) => [name, value])),
      // Programs that are compiled for size (-Os) are slower than the ones of distributions (-O2).
      compiled_with: compiled.rows[0]?.flags.match(/-O\w*/g)?.at(-1) ?? 'unknown',
    },
    redis_settings: 'appendonly yes, appendfsync always, noeviction',
  };
}

function versionOf(name: string): string {
  const file = path.join(packageRoot, 'node_modules', name, 'package.json');
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}
