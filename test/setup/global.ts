import { spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { createLog } from '../../src/log.ts';
import { packageRoot } from '../../src/package-root.ts';
import { migrate } from '../../src/store/migrate.ts';
import { TEMPLATE } from './template.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Address of the test cluster's maintenance database. */
    postgresUrl: string;
  }
}

/** Once per run: a cluster of our own in a temporary folder, with a migrated template database. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  buildIfStale();
  const home = mkdtempSync(path.join(tmpdir(), 'penstock-test-'));
  chmodSync(home, 0o755);
  const postgres = await startEmbeddedPostgres(home, createLog('test', 'warn'));
  await withoutPowerCuts(postgres.url);
  const template = new URL(postgres.url);
  template.pathname = TEMPLATE;
  await query(postgres.url, `create database ${TEMPLATE}`);
  await migrate(template.href);
  await query(postgres.url, `alter database ${TEMPLATE} with is_template true allow_connections false`);
  project.provide('postgresUrl', postgres.url);
  return async () => {
    await postgres.stop();
    rmSync(home, { recursive: true, force: true });
  };
}

/**
 * Processes are killed here, this server too perhaps, but never the machine: what Postgres has written is with the
 * system, and waiting for the disk would prove nothing. Tests that make a cluster of their own have it as it is run.
 */
async function withoutPowerCuts(url: string): Promise<void> {
  await query(url, 'alter system set fsync = off');
  await query(url, 'select pg_reload_conf()');
}

async function query(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}

/**
 * Processes under test are the compiled ones. `npm test` has compiled them, after the type check; when
 * vitest is started by hand, sources may have changed since.
 */
function buildIfStale(): void {
  const built = modifiedAt(path.join(packageRoot, 'dist/src/config.js'));
  const sources = ['src', 'workers', 'test/load', 'test/bench', 'test/chaos'].flatMap((folder) =>
    readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => path.join(packageRoot, folder, file)),
  );
  if (sources.every((file) => modifiedAt(file) <= built)) return;
  const { status } = spawnSync('npx', ['tsc', '-p', 'tsconfig.build.json'], {
    cwd: packageRoot,
    stdio: 'inherit',
  });
  if (status !== 0) process.stderr.write('dist is compiled from sources with type errors\n');
}

function modifiedAt(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
