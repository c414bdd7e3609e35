import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { PrismaPg } from '@prisma/adapter-pg';
import { bindMigrationAwareSqlAdapterFactory } from '@prisma/driver-adapter-utils';
import * as engineModule from '@prisma/schema-engine-wasm/schema_engine_bg';
import { runMigrations } from 'bullmq';
import pg from 'pg';
import { QUEUE_SCHEMA, type QueueConnection } from '../queue/connection.ts';
import { keepOrder } from '../queue/keep-order.ts';
import { vacuumOften } from '../queue/vacuum-often.ts';
import { MIGRATIONS, migrationNames } from './migration-names.ts';

/** The one call that we need of a global that the types of Node do not declare. */
declare const WebAssembly: {
  instantiate(code: Uint8Array, imports: object): Promise<{ instance: { exports: Record<string, unknown> } }>;
};

/** Any constant will do; it only must not be Prisma's own (72707369) nor BullMQ's. */
const MIGRATION_LOCK = 7_365_746;

/**
 * Brings the tables up to date: ours as `prisma migrate deploy` would, with its record in
 * `_prisma_migrations`, and BullMQ's where the queue lives in Postgres. Safe to repeat, and safe while
 * another process does the same: it waits for its turn and then finds nothing left to do.
 * @returns the names of our migrations that were applied now, in order.
 * @throws {Error} naming the migration that failed and Postgres's reason; nothing is changed then.
 */
export async function migrate(
  databaseUrl: string,
  queue: QueueConnection['kind'] = 'postgres',
): Promise<string[]> {
  // A pool of one: Prisma's adapter takes nothing else, and the lock and the transaction need one session.
  const pool = new pg.Pool({ connectionString: databaseUrl, max: 1, idleTimeoutMillis: 0 });
  pool.on('error', () => {});
  try {
    await pool.query('select pg_advisory_lock($1)', [MIGRATION_LOCK]);
    const applied = await applyMigrations(pool);
    if (queue === 'postgres') {
      const client = await pool.connect();
      try {
        await runMigrations(client, QUEUE_SCHEMA);
        await keepOrder(client);
        await vacuumOften(client);
      } finally {
        client.release();
      }
    }
    return applied;
  } finally {
    await pool.end();
  }
}

/**
 * All or none, in one transaction: a process that is killed halfway leaves no unfinished record behind, on
 * account of which Prisma would refuse every later run.
 */
async function applyMigrations(pool: pg.Pool): Promise<string[]> {
  await loadEngine();
  const migrationsList = await readMigrations();
  const adapter = new WholeScripts(pool);
  const bound = bindMigrationAwareSqlAdapterFactory(adapter);
  const engine = await engineModule.SchemaEngine.new({ datamodels: undefined }, () => {}, bound);
  await pool.query('begin');
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
        await this.pool.query(script);
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
let engineLoaded: Promise<void> | undefined;
function loadEngine(): Promise<void> {
  engineLoaded ??= instantiateEngine();
  return engineLoaded;
}

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
