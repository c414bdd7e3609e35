import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rename, rm, stat, utimes } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { type EmbeddedPostgres, SHORT_PROOF, startEmbeddedPostgres } from '../embedded/postgres.ts';
import type { ServerSettings } from '../embedded/server.ts';
import { cacheFolder } from '../platform/environment.ts';
import { packageRoot, packageVersion } from '../platform/files.ts';
import type { Log } from '../platform/log.ts';
import { controlFunctions } from '../store/control-functions.ts';

/** Settings of a small Postgres whose data may be lost when the machine stops. */
const settings: ServerSettings = {
  fsync: 'off',
  synchronous_commit: 'off',
  full_page_writes: 'off',
  wal_level: 'minimal',
  max_wal_senders: '0',
  max_wal_size: '256MB',
  checkpoint_timeout: '1h',
  shared_buffers: '32MB',
  max_connections: '40',
  // Run fewer processes: no workers for reads, parallel queries or replication.
  io_method: 'sync',
  max_worker_processes: '0',
  max_parallel_workers: '0',
  max_logical_replication_workers: '0',
  autovacuum_naptime: '60s',
};

/** Options of `initdb` for the same purpose. */
const initdb = ['--no-sync', '--wal-segsize=1', '--set=fsync=off', SHORT_PROOF];

/** Parts of a data folder that belong to its cluster. */
const PARTS = ['password', 'postgres'];

/** Days after which an unused template is removed. */
const UNUSED_DAYS = 30;

interface TemplateOptions {
  /** An empty data folder. */
  home: string;
  log: Log;
  /** Values of credentials that the template contains. */
  credentials: string[];
  /** Creates the tables and the first workspace in a new cluster. */
  fill(url: string): Promise<void>;
}

/**
 * Starts an embedded Postgres in an empty folder, with tables and the first workspace. It copies a cluster
 * that an earlier start left in the cache folder of the user, or creates the cluster and leaves a copy there.
 */
export async function startFromTemplate(options: TemplateOptions): Promise<EmbeddedPostgres> {
  const { home, log, fill } = options;
  const start = () => startEmbeddedPostgres(home, log, { settings, initdb });
  const template = path.join(cacheFolder(), 'penstock', `dev-${fingerprint(options.credentials)}`);
  if (existsSync(template)) {
    const now = new Date();
    await copyCluster(template, home);
    await utimes(template, now, now).catch(() => {});
    return start();
  }
  const first = await start();
  try {
    await fill(first.url);
  } finally {
    await first.stop();
  }
  await keepTemplate(home, template).catch((error) =>
    log.warn({ err: error, template }, 'database template could not be kept; the next start is slow as well'),
  );
  return start();
}

/**
 * Returns a digest of the programs, tables and credentials. Clusters with the same fingerprint are
 * interchangeable.
 */
function fingerprint(credentials: string[]): string {
  const migrations = readdirSync(path.join(packageRoot, 'prisma/migrations'));
  const programs = [packageVersion, process.platform, process.arch];
  const facts = [programs, settings, initdb, migrations, controlFunctions, credentials];
  return createHash('sha256').update(JSON.stringify(facts)).digest('hex').slice(0, 16);
}

/**
 * Copies a cluster with its file owners. If this process runs as root, Postgres runs as another user and
 * requires them.
 */
async function copyCluster(from: string, to: string): Promise<void> {
  await promisify(execFile)('cp', ['-pR', ...PARTS.map((part) => path.join(from, part)), to]);
}

/**
 * Copies the cluster next to the template and then renames the copy, because another start may do the same at
 * the same time.
 */
async function keepTemplate(home: string, template: string): Promise<void> {
  const folder = path.dirname(template);
  await mkdir(folder, { recursive: true, mode: 0o700 });
  await removeUnused(folder);
  const unfinished = await mkdtemp(path.join(folder, 'unfinished-'));
  try {
    await copyCluster(home, unfinished);
    await rename(unfinished, template);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    if (!existsSync(template)) throw error;
  }
}

async function removeUnused(folder: string): Promise<void> {
  const oldest = Date.now() - UNUSED_DAYS * 86_400_000;
  for (const name of await readdir(folder)) {
    if (!/^(?:dev|unfinished)-/.test(name)) continue;
    const { mtimeMs } = await stat(path.join(folder, name));
    if (mtimeMs < oldest) await rm(path.join(folder, name), { recursive: true, force: true });
  }
}
