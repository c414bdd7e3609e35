import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { startEmbeddedPostgres } from '../../src/embedded/postgres.ts';
import { packageRoot } from '../../src/platform/files.ts';
import { createLog } from '../../src/platform/log.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { openPool } from '../../src/store/database.ts';
import { distribute } from '../../src/store/distribute.ts';
import { makeCitusTemplate } from './citus.ts';
import { copyCluster } from './made-cluster.ts';
import { startPostgresOnPort } from './postgres-on-port.ts';
import { TEMPLATE } from './template.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** Address of the test cluster's maintenance database. */
    postgresUrl: string;
    /** Data folder of an embedded Postgres that was created and stopped. */
    madeCluster: string;
    /** Name of the distributed template database; empty: databases are on the test cluster. */
    citusTemplate: string;
  }
}

/** `citus`: databases of tests are on the Citus that CITUS_URL names. Empty: they are on the test cluster. */
const store = process.env.TEST_STORE;

interface Servers {
  url: string;
  madeCluster: string;
  citusTemplate: string;
  stop(): Promise<void>;
}

/** Servers of this run, shared by the setups of all tiers in this process. */
const run = globalThis as { penstockTestServers?: Promise<Servers> };

/** Runs once, whichever tiers run: starts a cluster with a migrated template database. */
export async function setup(project: TestProject): Promise<() => Promise<void>> {
  run.penstockTestServers ??= startServers();
  const { url, madeCluster, citusTemplate, stop } = await run.penstockTestServers;
  project.provide('postgresUrl', url);
  project.provide('madeCluster', madeCluster);
  project.provide('citusTemplate', citusTemplate);
  return stop;
}

async function startServers(): Promise<Servers> {
  buildIfStale();
  execFileSync(process.execPath, [path.join(packageRoot, 'test/setup/packages-at-once.cjs')]);
  const home = mkdtempSync(path.join(tmpdir(), 'penstock-test-'));
  chmodSync(home, 0o755);
  const log = createLog('test', 'warn');
  const madeCluster = path.join(home, 'made');
  await (await startEmbeddedPostgres(madeCluster, log)).stop();
  copyCluster(madeCluster, home);
  const postgres = await startPostgresOnPort(home, log);
  await withoutPowerCuts(postgres.url);
  const template = new URL(postgres.url);
  template.pathname = TEMPLATE;
  await query(postgres.url, `create database ${TEMPLATE}`);
  await migrate(template.href);
  await query(postgres.url, `alter database ${TEMPLATE} with is_template true allow_connections false`);
  const citus = store === 'citus' ? await makeCitusTemplate(migrateAndDistribute) : undefined;
  return {
    url: postgres.url,
    madeCluster,
    citusTemplate: citus?.name ?? '',
    async stop() {
      if (!run.penstockTestServers) return;
      delete run.penstockTestServers;
      await citus?.drop();
      await postgres.stop();
      rmSync(home, { recursive: true, force: true });
    },
  };
}

/**
 * Tests kill processes, and perhaps this server, but never the machine: written data is in the cache of the
 * system, and
 * waiting for the disk would prove no more. A database lives for seconds, too short for a vacuum; checking
 * forty of them for
 * work takes 4 % of a core. Tests that create a cluster of their own have production settings.
 */
async function withoutPowerCuts(url: string): Promise<void> {
  for (const setting of ['fsync = off', 'full_page_writes = off', 'autovacuum = off'])
    await query(url, `alter system set ${setting}`);
  await query(url, 'select pg_reload_conf()');
}

async function migrateAndDistribute(url: string): Promise<void> {
  await migrate(url);
  const pool = openPool(url, 1);
  await distribute(pool).finally(() => pool.end());
}

async function query(url: string, statement: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query(statement).finally(() => client.end());
}

/**
 * Compiles the code if it is outdated. Processes under test and the programs of tools/ are compiled; `npm
 * test` compiles them,
 * but sources may have changed when vitest is started by hand.
 */
function buildIfStale(): void {
  const built = modifiedAt(path.join(packageRoot, 'dist/tools/load/main.js'));
  const sources = ['src', 'workers', 'tools'].flatMap((folder) =>
    readdirSync(path.join(packageRoot, folder), { recursive: true, encoding: 'utf8' })
      .filter((file) => file.endsWith('.ts'))
      .map((file) => path.join(packageRoot, folder, file)),
  );
  if (sources.every((file) => modifiedAt(file) <= built)) return;
  const { status } = spawnSync('npx', ['tsc', '-p', 'tsconfig.tools.json'], {
    cwd: packageRoot,
    stdio: 'inherit',
  });
  if (status !== 0) process.stderr.write('dist is compiled from sources with type errors\n');
}

function modifiedAt(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
}
