import pg from 'pg';
import type { PrismaClient } from '../generated/prisma/client.ts';
import { tracing } from '../platform/tracing.ts';
import { findDistribution, liesApart } from './distributed.ts';
import { isForeignSession } from './error-cause.ts';
import { forgetPooling, type PoolMode, type SessionSettings, UnsupportedPooling } from './pooling.ts';
import { PATIENCE, type Patience, PostgresClient } from './postgres-client.ts';

/**
 * Returns the `verify` option for a pool whose connections need a session of their own, for example to
 * LISTEN.
 *
 * @param what the feature that needs the session; the subject of the error message
 */
export function requireSession(what: string) {
  return (client: pg.PoolClient, done: (error?: Error) => void): void => {
    beginWholeSession(client as unknown as PostgresClient, what).then(() => done(), done);
  };
}

/** Calls `beginSession`. @throws {UnsupportedPooling} for a pooler in transaction mode */
export async function beginWholeSession(client: PostgresClient, what: string): Promise<void> {
  if ((await client.beginSession()) !== 'transaction') return;
  throw new UnsupportedPooling(
    `${what} needs a session of its own, and the address leads through a connection pooler in transaction mode: set DATABASE_DIRECT_URL to the address of Postgres itself`,
  );
}

export type Pool = pg.Pool;
/** One checked-out connection. Parameters named `tx` are inside a transaction. */
export type Connection = pg.PoolClient;

/**
 * Access to Postgres, opened by `openDatabase`. `prisma` serves operations that read or write one row or one
 * page. `pool` serves set-based statements, which are prepared once per connection.
 */
export interface Database {
  pool: Pool;
  prisma: PrismaClient;
  stop(): Promise<void>;
}

/** Session settings and timeouts of a pool. */
export interface PoolOptions {
  /** Postgres settings for the pool's sessions; times in milliseconds. */
  session?: SessionSettings;
  patience?: Patience;
}

/**
 * Session settings for workers. All their statements read rows by a set of keys through an index. A plan is
 * made once per connection and statement. If it were made while a table was new and had no statistics, it
 * could scan the whole table in every later batch. Postgres still scans the table if no index fits, so a test
 * checks every plan.
 */
export const everyStatementByIndex = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  plan_cache_mode: 'force_generic_plan',
  jit: 'off',
};

/**
 * Milliseconds after which a pool closes an idle connection. Longer than every polling interval, because
 * opening a connection for each poll would take most of its processor time.
 */
export const IDLE_TIMEOUT = 20_000;

/**
 * A pool in which a caller that waited for a connection continues in its own span, and not in the span of the code that
 * released the connection.
 */
class SpanPool extends pg.Pool {
  override connect(): Promise<pg.PoolClient>;
  override connect(done: ConnectCallback): void;
  override connect(done?: ConnectCallback): Promise<pg.PoolClient> | undefined {
    if (!done) return super.connect();
    super.connect(tracing ? tracing.bind(done) : done);
    return undefined;
  }
}

type ConnectCallback = Parameters<pg.Pool['connect']>[0];

/**
 * Opens a pool for set-based statements. It connects with the first statement.
 *
 * @param size maximum number of connections
 */
export function openPool(
  url: string,
  size: number,
  { session = {}, patience = PATIENCE }: PoolOptions = {},
): Pool {
  const distribution = findDistribution(() => pool, session);
  const pool: pg.Pool = new SpanPool({
    Client: PostgresClient,
    connectionString: url,
    session,
    verify(client: pg.PoolClient, done: (error?: Error) => void) {
      const begun = (client as unknown as PostgresClient).beginSession();
      const refuse = (mode: PoolMode, error?: Error) =>
        done(error ?? (mode === 'transaction' && liesApart(client) ? refusedDistribution() : undefined));
      begun.then((mode) => distribution(client, (error) => refuse(mode, error)), done);
    },
    max: size,
    idleTimeoutMillis: IDLE_TIMEOUT,
    connectionTimeoutMillis: patience.connection,
    query_timeout: patience.statement,
    keepAlive: true,
    // Statements are sent without waiting for earlier results, so the independent statements of a transaction
    // take one round trip in total.
    pipeline: true,
  } as pg.PoolConfig);
  // The pool replaces an idle connection that the server closed. Without a listener, the error would end the
  // process.
  pool.on('error', () => {});
  // The URL now leads to a different kind of session: a pooler was added, or its mode was changed.
  pool.on('release', (error, client) => {
    if (isForeignSession(error)) forgetPooling(url);
    // The pool removes a client that has ended.
    if ((client as unknown as PostgresClient).isSingleUse) void client.end();
  });
  // A connection that is ended during its release emits its error after the pool removed its own listener.
  pool.on('connect', (client) => client.on('error', () => {}));
  return pool;
}

const refusedDistribution = () =>
  new UnsupportedPooling(
    'the tables are distributed by Citus, and DATABASE_URL leads through a connection pooler in transaction mode: set DATABASE_URL to the address of the coordinator itself, or pool_mode to session',
  );

/**
 * Converts a value for a text column. Replaces U+0000 and lone surrogates, which Postgres rejects and user
 * input may contain.
 */
export function storable(value: unknown): string {
  return String(value).toWellFormed().replaceAll('\u0000', '\u2400');
}

/**
 * Returns SQL that formats a time as ISO 8601 in UTC, regardless of the session's time zone, with
 * milliseconds or microseconds.
 */
export const iso = (time: string, fraction: 'MS' | 'US' = 'MS') =>
  `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.${fraction}"Z"')`;

/** Number of 8 KB pages below which a planner may have considered all access paths equally cheap. */
const SMALL_PAGES = 16;

/** Growth factor since the last ANALYZE from which a table is analyzed again. */
const GROWTH_FACTOR = 4;

/**
 * Statements are planned once per connection. A plan that was made for a nearly empty table scans the whole
 * table. Autovacuum notices the growth within a minute, but the table may be large by then. A table that was
 * never analyzed is not selected, because Postgres assumes ten pages for it.
 */
const findGrownStatement = `
  select pg_class.oid::regclass::text as name
  from pg_class
  where pg_class.relnamespace = 'public'::regnamespace
    and pg_class.relkind = 'r'
    and pg_class.reltuples >= 0
    and pg_class.relpages < ${SMALL_PAGES}
    and pg_relation_size(pg_class.oid) > ${GROWTH_FACTOR} * greatest(pg_class.relpages, 1) * current_setting('block_size')::integer`;

/**
 * Analyzes tables that were nearly empty at the last ANALYZE and have grown since, so that Postgres replans
 * all statements on them. Skips tables that another process is analyzing.
 *
 * @returns the names of the tables
 */
export async function analyzeGrown(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>({ name: 'find-grown', text: findGrownStatement });
  for (const { name } of rows) await pool.query(`analyze (skip_locked) ${name}`);
  return rows.map(({ name }) => name);
}
