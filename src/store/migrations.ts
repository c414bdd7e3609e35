import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PrismaPg } from '@prisma/adapter-pg';
import {
  bindMigrationAwareSqlAdapterFactory,
  type SqlDriverAdapter,
  type SqlMigrationAwareDriverAdapterFactory,
} from '@prisma/driver-adapter-utils';
import * as engineModule from '@prisma/schema-engine-wasm/schema_engine_bg';
import type pg from 'pg';
import { openOnce } from '../platform/concurrency.ts';
import { packageRoot } from '../platform/files.ts';
import { rest } from '../platform/poll.ts';
import type { Pool } from './database.ts';
import { hasDistributedTables as isDistributed } from './distributed.ts';

/** Folder of the migrations. */
const MIGRATIONS = path.join(packageRoot, 'prisma/migrations');

/** Returns the names of the migrations, in order. */
function migrationNames(): string[] {
  return readdirSync(MIGRATIONS, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
}

/** The only function that we need of a global that Node's types do not declare. */
declare const WebAssembly: {
  instantiate(code: Uint8Array, imports: object): Promise<{ instance: { exports: Record<string, unknown> } }>;
};

/** Lock timeouts of a migration, in milliseconds. */
export interface LockPatience {
  /** Timeout for one lock. Short, because later statements queue up after the migration's lock request. */
  wait: number;
  /** Pause between two attempts, in which other transactions continue. */
  pause: number;
  /** Total time limit. */
  maxTotal: number;
  /** Called after each failed attempt, with the reason and the blocking sessions. */
  onRetry(reason: string): void;
}

const defaultPatience: LockPatience = { wait: 2000, pause: 3000, maxTotal: 300_000, onRetry: () => {} };

/** SQLSTATEs of a lock timeout and a deadlock. */
const LOCK_ERRORS = ['55P03', '40P01'];

/**
 * Applies all missing migrations in one transaction. A process that is killed halfway leaves no unfinished
 * record, because of which Prisma would reject every later run. It waits only briefly for each lock, then
 * rolls back and retries.
 *
 * @param pool pool with one connection
 * @returns the names of the applied migrations
 * @throws {Error} with the migration, the reason and, after a lock timeout, the blocking sessions; the
 * database is unchanged
 */
export async function applyMigrations(
  pool: pg.Pool,
  patience: Partial<LockPatience> = {},
): Promise<string[]> {
  const { wait, pause, maxTotal, onRetry } = { ...defaultPatience, ...patience };
  await loadEngine();
  const migrationsList = await readMigrations();
  const deadline = Date.now() + maxTotal;
  for (;;) {
    try {
      return await applyOnce(pool, migrationsList, wait);
    } catch (error) {
      if (!LOCK_ERRORS.includes((error as { cause?: { code?: string } }).cause?.code ?? '')) throw error;
      const blockers = (await pool.query<{ holder: string }>(longestTransactions)).rows.map(
        ({ holder }) => holder,
      );
      const reason = `${(error as Error).message}; in the way may be ${blockers.join(', ') || 'somebody who has just ended'}`;
      if (Date.now() + pause > deadline) {
        throw new Error(`${reason}: let it end, or end it by pg_terminate_backend, and try again`, {
          cause: error,
        });
      }
      onRetry(reason);
      await rest(pause);
    }
  }
}

/** Sessions with the oldest transactions in this database. */
const longestTransactions = `
  select format(
      'process %s (%s, %s s in its transaction)',
      pg_stat_activity.pid,
      coalesce(nullif(pg_stat_activity.application_name, ''), 'without a name'),
      floor(extract(epoch from pg_catalog.clock_timestamp() - pg_stat_activity.xact_start))
    ) as holder
  from pg_stat_activity
  where pg_stat_activity.datname = current_database()
    and pg_stat_activity.pid <> pg_backend_pid()
    and pg_stat_activity.xact_start < pg_catalog.clock_timestamp() - interval '1 second'
  order by pg_stat_activity.xact_start
  limit 3`;

async function applyOnce(
  pool: pg.Pool,
  migrationsList: Awaited<ReturnType<typeof readMigrations>>,
  lockTimeout: number,
): Promise<string[]> {
  const adapter = new WholeScripts(pool);
  const bound = bindMigrationAwareSqlAdapterFactory(adapter);
  const engine = await engineModule.SchemaEngine.new({ datamodels: undefined }, () => {}, bound);
  // The second setting is for Citus, where a transaction that changes several tables must modify the shards
  // sequentially.
  await pool.query(
    `begin; set local lock_timeout = ${lockTimeout}; set local citus.multi_shard_modify_mode = 'sequential'`,
  );
  try {
    const filters = { externalTables: [], externalEnums: [] };
    const { appliedMigrationNames } = await engine.applyMigrations({ migrationsList, filters });
    await pool.query('commit');
    return appliedMigrationNames;
  } catch (error) {
    await pool.query('rollback');
    const { failed } = adapter;
    if (!failed) throw error;
    const migration = migrationsList.migrationDirectories.find(
      ({ migrationFile }) => migrationFile.content.value === failed.script,
    );
    const reason = failed.error instanceof Error ? failed.error.message : String(failed.error);
    throw new Error(`migration ${migration?.path} failed: ${reason}`, { cause: failed.error });
  } finally {
    engine.free();
  }
}

/**
 * Sends a migration script to Postgres as a whole. Prisma's adapter splits scripts at every semicolon, even
 * in comments and function bodies.
 */
class WholeScripts implements SqlMigrationAwareDriverAdapterFactory {
  readonly provider = 'postgres';
  readonly adapterName: string;
  failed: { script: string; error: unknown } | undefined;

  readonly #pool: pg.Pool;
  readonly #factory: PrismaPg;

  constructor(pool: pg.Pool) {
    this.#pool = pool;
    this.#factory = new PrismaPg(pool);
    this.adapterName = this.#factory.adapterName;
  }

  async connect(): Promise<SqlDriverAdapter> {
    const adapter = await this.#factory.connect();
    return {
      provider: adapter.provider,
      adapterName: adapter.adapterName,
      queryRaw: (query) => adapter.queryRaw(query),
      executeRaw: (query) => adapter.executeRaw(query),
      executeScript: (script) => this.#sendWhole(script),
      startTransaction: (isolationLevel) => adapter.startTransaction(isolationLevel),
      getConnectionInfo: () => adapter.getConnectionInfo(),
      dispose: () => adapter.dispose(),
    };
  }

  connectToShadowDb(): Promise<SqlDriverAdapter> {
    return this.#factory.connectToShadowDb();
  }

  async #sendWhole(script: string): Promise<void> {
    try {
      for (const statement of (await isDistributed(this.#pool)) ? splitScript(script) : [script])
        await this.#pool.query(statement);
    } catch (error) {
      this.failed ??= { script, error };
      throw error;
    }
  }
}

/**
 * Loads npm's WebAssembly build of Prisma's schema engine, so that no binary is downloaded. The package's own
 * entry imports the .wasm file as a module, which Node 20 does not support without a flag; this function
 * replaces that entry. Once per process, because the bindings hold the state of one instance.
 */
const loadEngine = openOnce(instantiateEngine);

async function instantiateEngine(): Promise<void> {
  const file = createRequire(import.meta.url).resolve('@prisma/schema-engine-wasm/schema_engine_bg');
  const { instance } = await WebAssembly.instantiate(
    await readFile(path.join(path.dirname(file), 'schema_engine_bg.wasm')),
    { './schema_engine_bg.js': { ...engineModule, ...unreferencedTimers() } },
  );
  engineModule.__wbg_set_wasm(instance.exports);
  (instance.exports.__wbindgen_start as () => void)();
  // The engine reports a panic here before it aborts.
  Object.assign(globalThis, {
    PRISMA_WASM_PANIC_REGISTRY: {
      set_message(message: string) {
        throw new Error(`Prisma's schema engine gave up: ${message}`);
      },
    },
  });
}

/** Calls `unref` on the engine's timers. Its lock timeout of 10 s is never cleared and would keep the process alive. */
function unreferencedTimers(): object {
  const names = Object.keys(engineModule).filter((name) => name.startsWith('__wbg_setTimeout_'));
  return Object.fromEntries(
    names.map((name) => [name, (callback: () => void, ms: number) => setTimeout(callback, ms).unref()]),
  );
}

async function readMigrations() {
  const baseDir = MIGRATIONS;
  const names = migrationNames();
  const lockfile = 'migration_lock.toml';
  return {
    baseDir,
    lockfile: { path: lockfile, content: await readFile(path.join(baseDir, lockfile), 'utf8') },
    shadowDbInitScript: '',
    migrationDirectories: await Promise.all(
      names.map(async (name) => ({
        path: name,
        migrationFile: {
          path: 'migration.sql',
          content: {
            tag: 'ok' as const,
            value: await readFile(path.join(baseDir, name, 'migration.sql'), 'utf8'),
          },
        },
      })),
    ),
  };
}

/** Scans a table that has one row per migration. */
const readAppliedStatement = `
  select array(
    select _prisma_migrations.migration_name
    from _prisma_migrations
    where _prisma_migrations.finished_at is not null
      and _prisma_migrations.rolled_back_at is null
  ) as applied`;

let wanted: string[] | undefined;

/**
 * Returns whether all migrations of this release are applied. The database may also have those of a later
 * release.
 *
 * @param patience timeout in milliseconds; a connection that takes longer is not reused
 * @throws if Postgres does not respond
 */
export async function isMigrated(pool: Pool, patience: number): Promise<boolean> {
  wanted ??= migrationNames();
  try {
    const { rows } = await pool.query<{ applied: string[] }>({
      text: readAppliedStatement,
      query_timeout: patience,
    } as never);
    return wanted.every((name) => rows[0]!.applied.includes(name));
  } catch (error) {
    // The migrations table does not exist yet.
    if ((error as { code?: string }).code === '42P01') return false;
    throw error;
  }
}

/** Matches comments, strings, quoted names and function bodies, whose semicolons do not end a statement. */
const TOKEN = /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$[\s\S]*?\$\1\$|;/g;

/**
 * Splits a script into statements. Citus sends the whole text of a command to its nodes, which accept one
 * statement at a time.
 */
export function splitScript(script: string): string[] {
  const statements: string[] = [];
  let start = 0;
  for (const { 0: token, index } of script.matchAll(TOKEN)) {
    if (token !== ';') continue;
    statements.push(script.slice(start, index));
    start = index + 1;
  }
  statements.push(script.slice(start));
  return statements.filter((one) => one.replace(/--[^\n]*|\/\*[\s\S]*?\*\//g, '').trim() !== '');
}
