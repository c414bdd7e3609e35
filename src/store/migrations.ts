import { readdirSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PrismaPg } from '@prisma/adapter-pg';
import { bindMigrationAwareSqlAdapterFactory } from '@prisma/driver-adapter-utils';
import * as engineModule from '@prisma/schema-engine-wasm/schema_engine_bg';
import type pg from 'pg';
import { openOnce } from '../platform/concurrency.ts';
import { packageRoot } from '../platform/files.ts';
import { rest } from '../platform/poll.ts';
import type { Pool } from './database.ts';
import { hasDistributedTables as isDistributed } from './distributed.ts';

/** The folder of our migrations. */
const MIGRATIONS = path.join(packageRoot, 'prisma/migrations');

/** The names of our migrations, in order. */
function migrationNames(): string[] {
  return readdirSync(MIGRATIONS, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map((entry) => entry.name)
    .sort();
}

/** The one call that we need of a global that the types of Node do not declare. */
declare const WebAssembly: {
  instantiate(code: Uint8Array, imports: object): Promise<{ instance: { exports: Record<string, unknown> } }>;
};

/** How a migration waits for a table that others use, in milliseconds. */
export interface LockPatience {
  /** For one lock. Whoever comes meanwhile stands behind it, so it is short. */
  wait: number;
  /** Between two tries, in which they go on. */
  pause: number;
  /** In all. */
  most: number;
  /** Told of each try that was for nothing: who is in the way. */
  tell(reason: string): void;
}

const usual: LockPatience = { wait: 2000, pause: 3000, most: 300_000, tell: () => {} };

/** Postgres's codes for a lock that was not to be had in time, or not without a deadlock. */
const IN_THE_WAY = ['55P03', '40P01'];

/**
 * All or none, in one transaction: a process that is killed halfway leaves no unfinished record behind, on
 * account of which Prisma would refuse every later run. It never waits long for a lock with others behind it: it lets go,
 * and tries again.
 *
 * @param pool of one connection
 * @throws {Error} naming the migration, the reason, and who is in the way where that is the reason; nothing is changed then
 */
export async function applyMigrations(
  pool: pg.Pool,
  patience: Partial<LockPatience> = {},
): Promise<string[]> {
  const { wait, pause, most, tell } = { ...usual, ...patience };
  await loadEngine();
  const migrationsList = await readMigrations();
  const deadline = Date.now() + most;
  for (;;) {
    try {
      return await applyOnce(pool, migrationsList, wait);
    } catch (error) {
      if (!IN_THE_WAY.includes((error as { cause?: { code?: string } }).cause?.code ?? '')) throw error;
      const inTheWay = (await pool.query<{ holder: string }>(longestTransactions)).rows.map(
        ({ holder }) => holder,
      );
      const reason = `${(error as Error).message}; in the way may be ${inTheWay.join(', ') || 'somebody who has just ended'}`;
      if (Date.now() + pause > deadline) {
        throw new Error(`${reason}: let it end, or end it by pg_terminate_backend, and try again`, {
          cause: error,
        });
      }
      tell(reason);
      await rest(pause);
    }
  }
}

/** Who has been in a transaction of this database for longest. */
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
  // The second is of a Citus alone: a transaction that changes several tables there goes through them one by one.
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

/** Prisma's adapter splits a script at every semicolon, also of a comment or a function's body; Postgres takes it whole. */
class WholeScripts extends PrismaPg {
  failed: { script: string; error: unknown } | undefined;

  private readonly pool: pg.Pool;

  constructor(pool: pg.Pool) {
    super(pool);
    this.pool = pool;
  }

  override async connect() {
    const adapter = await super.connect();
    adapter.executeScript = async (script) => {
      try {
        for (const statement of (await isDistributed(this.pool)) ? splitScript(script) : [script])
          await this.pool.query(statement);
      } catch (error) {
        this.failed ??= { script, error };
        throw error;
      }
    };
    return adapter;
  }
}

/**
 * npm's WebAssembly build of Prisma's schema engine, so that nothing is downloaded. The package's own entry
 * imports the .wasm file as a module, which Node 20 cannot do without a flag; this is what that entry does.
 * Once per process: the bindings keep the state of one instance.
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
  // Where the engine's last words go before it gives up.
  Object.assign(globalThis, {
    PRISMA_WASM_PANIC_REGISTRY: {
      set_message(message: string) {
        throw new Error(`Prisma's schema engine gave up: ${message}`);
      },
    },
  });
}

/** The engine gives up on its lock after 10 s, by a timer that it never clears: the process must not wait for it. */
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

/** A scan of a table that has a row for each migration. */
const text = `
  select array(
    select _prisma_migrations.migration_name
    from _prisma_migrations
    where _prisma_migrations.finished_at is not null
      and _prisma_migrations.rolled_back_at is null
  ) as applied`;

let wanted: string[] | undefined;

/**
 * Whether the database has every table and column of this version; it may have those of a later one as well.
 *
 * @param patience milliseconds for the answer; a connection that takes longer is not used again
 * @throws when Postgres does not answer
 */
export async function isMigrated(pool: Pool, patience: number): Promise<boolean> {
  wanted ??= migrationNames();
  try {
    const { rows } = await pool.query<{ applied: string[] }>({ text, query_timeout: patience } as never);
    return wanted.every((name) => rows[0]!.applied.includes(name));
  } catch (error) {
    // There is no such table.
    if ((error as { code?: string }).code === '42P01') return false;
    throw error;
  }
}

/** What holds semicolons that end nothing: comments, texts, names, bodies of functions. */
const TOKEN = /--[^\n]*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$[\s\S]*?\$\1\$|;/g;

/** The statements of a script. A Citus tells its nodes the whole text of what it is sent, and they take one at a time. */
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
