import pg from 'pg';
import type { PrismaClient } from '../generated/prisma/client.ts';
import { tracing } from '../platform/tracing.ts';
import { findDistribution } from './distributed.ts';
import { bindConnects, traceStatements, workFor } from './statement-spans.ts';

/** Another program answers in the server's place: it was told nothing but the names of a role and a database. */
class UnprovenServer extends Error {
  readonly code = 'UNPROVEN_SERVER';
}

/** What libpq, too, calls it: https://www.postgresql.org/docs/current/libpq-connect.html */
const REQUIRE_SCRAM = /[?&]require_auth=scram-sha-256(&|$)/;

/** The address, which says so from then on that the server has to prove that it knows the password. */
export function withRequiredScram(url: string): string {
  if (REQUIRE_SCRAM.test(url)) return url;
  return `${url}${url.includes('?') ? '&' : '?'}require_auth=scram-sha-256`;
}

/**
 * A client that heeds `require_auth=scram-sha-256` of its address. Whoever listens there has to prove by SCRAM that it
 * knows the password itself. Before that it gets neither the password, nor its md5, nor a statement. `pg` alone gives a
 * server whatever it asks for, and takes it at its word when it asks for nothing.
 */
export class PostgresClient extends pg.Client {
  constructor(config?: string | pg.ClientConfig) {
    super(config);
    const address = typeof config === 'string' ? config : config?.connectionString;
    if (REQUIRE_SCRAM.test(address ?? '')) requireScram(this.connection);
    traceStatements(this);
  }
}

/** What a server may say before its proof. Of the first three `pg` itself sees to it that they are SCRAM's. */
const BEFORE_PROOF = new Set([
  'authenticationSASL',
  'authenticationSASLContinue',
  'authenticationSASLFinal',
  'errorMessage',
  'notice',
  // Of the connection itself.
  ...['connect', 'sslconnect', 'error', 'end', 'message', 'newListener'],
]);

function requireScram(connection: pg.Connection): void {
  const emit = connection.emit.bind(connection);
  let proved = false;
  let refused = false;
  connection.emit = (event: string, ...args: unknown[]) => {
    if (refused && event !== 'end') return false;
    if (!proved && !BEFORE_PROOF.has(event)) {
      refused = true;
      connection.stream.destroy();
      return emit('error', new UnprovenServer('the server does not prove that it knows the password'));
    }
    const heard = emit(event, ...args);
    // `pg` compares the signature while it hears this, and reports a wrong one as an error.
    if (event === 'authenticationSASLFinal' && !refused) proved = true;
    // Whatever was wrong with its answers: it is not asked anything else.
    if (event === 'error' && !proved) {
      refused = true;
      connection.stream.destroy();
    }
    return heard;
  };
}

// bigint columns hold counts that stay far below 2^53.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);

export type Pool = pg.Pool;
/** One checked-out connection, inside a transaction where the name says `tx`. */
export type Connection = pg.PoolClient;

/**
 * Postgres, twice over one driver. `prisma` is for the direct operations, one row or a page at a time. `pool` is for
 * statements over whole sets, which are prepared once per connection. `openDatabase` opens both.
 */
export interface Database {
  pool: Pool;
  prisma: PrismaClient;
  stop(): Promise<void>;
}

/** Milliseconds; what takes longer fails. */
export interface Patience {
  /** For a connection, whether a new one or one of the pool's that another has now. */
  connection: number;
  /** For the answer to a statement. Absent: for ever. */
  statement?: number;
}

/** Where statements go, and how long they may take. */
export interface PoolOptions {
  /** Server settings for the pool's sessions, times in milliseconds. */
  session?: Record<string, number | string>;
  patience?: Patience;
}

/**
 * Session settings for the workers, whose statements all go from a set of keys to rows through an index. A plan
 * is made once per connection and statement; made while a table is new and has no statistics, it could read
 * the whole table for every batch to come. Where no index fits, Postgres reads the table all the same: a test looks
 * at every plan.
 */
export const everyStatementByIndex = {
  enable_seqscan: 'off',
  enable_hashjoin: 'off',
  enable_mergejoin: 'off',
  plan_cache_mode: 'force_generic_plan',
  jit: 'off',
};

/** For a connection of the pool, unless told. */
export const PATIENCE: Patience = { connection: 5000 };

/**
 * A pool of connections, for statements over whole sets. Opens lazily: the first statement connects.
 *
 * @param size most connections
 */
export function openPool(
  url: string,
  size: number,
  { session = {}, patience = PATIENCE }: PoolOptions = {},
): Pool {
  const options = Object.entries(session)
    .map(([name, value]) => `-c ${name}=${value}`)
    .join(' ');
  const pool: pg.Pool = new pg.Pool({
    Client: PostgresClient,
    connectionString: url,
    options,
    verify: findDistribution(() => pool),
    max: size,
    connectionTimeoutMillis: patience.connection,
    query_timeout: patience.statement,
    keepAlive: true,
    // Statements leave as they are given, without waiting for the answers to those before: a transaction's
    // independent ones cost one round trip together.
    pipeline: true,
  } as pg.PoolConfig);
  // An idle connection that the server closes is replaced at the next use; without a listener it would end the process.
  pool.on('error', () => {});
  // One that is ended while it is given back reports it when nobody listens any more.
  pool.on('connect', (client) => client.on('error', () => {}));
  bindConnects(pool);
  return pool;
}

/** Milliseconds that a transaction's statements may take, and wait for a lock; what takes longer fails. */
export interface Limits {
  statement: number;
  lock: number;
}

/**
 * Commits what `work` does, or nothing of it. A connection that failed is not used again.
 *
 * @param work may send COMMIT itself, behind its last statements and in one write with them: should one of those fail,
 *   the server takes it for ROLLBACK
 * @throws what `work` throws, or why the connection was lost, where that is known
 */
export async function inTransaction<T>(
  pool: Pool,
  work: (tx: Connection, commit: () => Promise<unknown>) => Promise<T>,
  limits?: Limits,
): Promise<T> {
  const span = tracing?.recording();
  const tx = await pool.connect();
  if (span) workFor(tx, span);
  let broken: Error | undefined;
  // While it is checked out, the connection's own errors have no other listener, and would end the process.
  const onError = (error: Error) => {
    broken = error;
  };
  tx.on('error', onError);
  let committed: Promise<unknown> | undefined;
  const commit = () => {
    committed ??= tx.query('commit');
    return committed;
  };
  try {
    await tx.query(beginning(limits));
    const result = await work(tx, commit);
    await commit();
    return result;
  } catch (error) {
    const lost = broken;
    if (isStale(error)) broken = error as Error;
    await tx.query('rollback').catch((failure: Error) => {
      broken = failure;
    });
    throw lost ?? error;
  } finally {
    tx.off('error', onError);
    if (span) workFor(tx, undefined);
    tx.release(broken);
  }
}

/** Whether a prepared statement of the connection returns rows of a shape that is gone: a new connection makes it anew. */
function isStale(error: unknown): boolean {
  const { code, message } = error as { code?: string; message?: string };
  return code === '0A000' && message?.includes('cached plan') === true;
}

/** One message, and so one round trip. */
function beginning(limits: Limits | undefined): string {
  if (!limits) return 'begin';
  const { statement, lock } = limits;
  return `begin; set local statement_timeout = ${statement}; set local lock_timeout = ${lock}`;
}

/**
 * A value as a text column takes it: with neither U+0000 nor lone surrogates, both of which a caller's words may have.
 */
export function storable(value: unknown): string {
  return String(value).toWellFormed().replaceAll('\u0000', '\u2400');
}

/** Pages of 8 KB up to which a table was so small that all ways into it seemed to cost the same. */
const TINY = 16;

/** Times what it was at the last look. */
const GROWN = 4;

/**
 * Statements are planned once per connection. A plan that was made while a table was next to empty, and known to be so,
 * goes through all of it. Postgres notices within a minute that the table has grown, in which it may have become large.
 * A table that nobody has looked at yet needs no look: Postgres takes it for ten pages.
 */
const findGrownStatement = `
  select pg_class.oid::regclass::text as name
  from pg_class
  where pg_class.relnamespace = 'public'::regnamespace
    and pg_class.relkind = 'r'
    and pg_class.reltuples >= 0
    and pg_class.relpages < ${TINY}
    and pg_relation_size(pg_class.oid) > ${GROWN} * greatest(pg_class.relpages, 1) * current_setting('block_size')::integer`;

/**
 * Counts the tables that were next to empty at the last look and are not now: every plan that was made for them is made
 * anew. What another process counts just now is left to it.
 *
 * @returns their names
 */
export async function analyzeGrown(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>({ name: 'find-grown', text: findGrownStatement });
  for (const { name } of rows) await pool.query(`analyze (skip_locked) ${name}`);
  return rows.map(({ name }) => name);
}
