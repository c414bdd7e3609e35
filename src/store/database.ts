import pg from 'pg';
import type { PrismaClient } from '../generated/prisma/client.ts';
import { kindOf, type Span, tracing } from '../platform/tracing.ts';
import { findDistribution, liesApart } from './distributed.ts';
import { isForeignSession, isStalePlan } from './error-cause.ts';
import {
  asOptions,
  asStatements,
  beginWith,
  boundOf,
  forgetPooling,
  knownPooling,
  type Pooling,
  type PoolMode,
  poolingOf,
  type SessionSettings,
  UnsupportedPooling,
} from './pooling.ts';

/**
 * Thrown if the server does not complete SCRAM authentication. Until then it has received only the names of
 * the role and the database.
 */
class UnprovenServer extends Error {
  readonly code = 'UNPROVEN_SERVER';
}

/**
 * Parameter of the connection URL with the same name and meaning as in libpq:
 * https://www.postgresql.org/docs/current/libpq-connect.html
 */
const REQUIRE_SCRAM = /[?&]require_auth=scram-sha-256(&|$)/;

/**
 * Adds `require_auth=scram-sha-256` to a connection URL, so that the server has to prove that it knows the
 * password.
 */
export function withRequiredScram(url: string): string {
  if (REQUIRE_SCRAM.test(url)) return url;
  return `${url}${url.includes('?') ? '&' : '?'}require_auth=scram-sha-256`;
}

/**
 * A `pg` client that supports `require_auth=scram-sha-256` in its URL. The server then has to prove by SCRAM
 * that it knows the password. Before that it receives neither the password, its md5, nor a statement. Plain
 * `pg` answers whatever authentication the server requests, and continues if it requests none.
 */
export class PostgresClient extends pg.Client {
  readonly #url: string;
  readonly #session: SessionSettings;
  /** Whether the session settings were sent with the startup message. */
  readonly #isSet: boolean;
  /** Set if the connection goes through a pooler in transaction mode. */
  #pooled: { settings: string; pooling: Pooling } | undefined;
  #isInTransaction = false;

  constructor(config: string | PostgresClientConfig = {}) {
    const { connectionString = '', session = {} } = typeof config === 'string' ? {} : config;
    const url = typeof config === 'string' ? config : connectionString;
    const isSet = Object.keys(session).length > 0 && knownPooling(url)?.mode === 'none';
    super(isSet ? { ...(config as pg.ClientConfig), options: asOptions(session) } : config);
    this.#url = url;
    this.#session = session;
    this.#isSet = isSet;
    if (REQUIRE_SCRAM.test(url)) requireScram(this.connection);
    traceStatements(this);
  }

  /**
   * Applies the session settings to a new connection: immediately, or at the start of each transaction if the
   * connection goes through a pooler in transaction mode. Call it once, before the first statement.
   *
   * @throws {UnsupportedPooling} for a pooler in statement mode
   */
  async beginSession(): Promise<PoolMode> {
    const pooling = await poolingOf(this.#url, this, () => this.#openProbe());
    const hasSettings = Object.keys(this.#session).length > 0;
    if (pooling.mode === 'transaction')
      this.#pooled = { settings: asStatements(this.#session, 'local'), pooling };
    else if (hasSettings && !this.#isSet) await this.query(asStatements(this.#session, 'session'));
    return pooling.mode;
  }

  #openProbe(): pg.Client {
    const { connection } = PATIENCE;
    return new PostgresClient({
      ...{ connectionString: this.#url, connectionTimeoutMillis: connection, query_timeout: connection },
    });
  }

  override query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    statement: string | pg.QueryConfig,
    values?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
  // biome-ignore lint/suspicious/noExplicitAny: `pg` accepts a text or an object, then values or a callback.
  override query(statement: any, values?: any, done?: any): any;
  // biome-ignore lint/suspicious/noExplicitAny: `pg` accepts a text or an object, then values or a callback.
  override query(statement: any, values?: any, done?: any): any {
    if (this.#pooled === undefined) return super.query(statement, values, done);
    return this.#queryPooled(this.#pooled, [statement, values, done]);
  }

  /**
   * Sends a statement through a pooler in transaction mode. Each transaction begins with the session
   * settings. A statement outside a transaction is wrapped in one of its own; begin, statement and commit are
   * sent in one write. The statement's name is omitted if the pooler does not support prepared statements.
   */
  #queryPooled(
    { settings, pooling }: { settings: string; pooling: Pooling },
    [statement, values, done]: [string | { name?: string; text?: string; submit?: unknown }, ...unknown[]],
  ): unknown {
    const send = (...given: unknown[]) => (super.query as Query)(...given);
    const isText = typeof statement === 'string';
    if (!isText && (typeof statement.submit === 'function' || statement.text === undefined))
      return send(statement, values, done);
    const text = isText ? statement : statement.text!;
    const bound = boundOf(text);
    if (bound !== undefined) {
      this.#isInTransaction = bound === 'begin';
      const whole = bound === 'begin' ? beginWith(text, settings) : text;
      return send(isText ? whole : { ...statement, text: whole }, values, done);
    }
    const named = isText || pooling.keepsNames ? statement : { ...statement, name: undefined };
    const callback = [values, done].find((one) => typeof one === 'function') as Query | undefined;
    const answer =
      this.#isInTransaction || settings === '' ? send(named, asValues(values)) : inOwnTransaction();
    const checked = (answer as Promise<unknown>).catch((error: unknown) => {
      // The pooler's prepared statement is stale or gone, so from now on statements are sent without a name.
      if (isStalePlan(error) || isForeignSession(error)) pooling.keepsNames = false;
      throw error;
    });
    if (!callback) return checked;
    checked.then((result) => callback(null, result), callback);
    return undefined;

    function inOwnTransaction(): Promise<unknown> {
      const sent = [send(`begin; ${settings}`), send(named, asValues(values)), send('commit')];
      return Promise.all(sent).then(([, result]) => result);
    }
  }
}

/** Returns the values of a statement. `pg` also accepts a callback in this position. */
const asValues = (given: unknown) => (typeof given === 'function' ? undefined : given);

/** Options of a `pg` client, and Postgres settings for the session. */
interface PostgresClientConfig extends pg.ClientConfig {
  session?: SessionSettings;
}

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

/** Messages that a server may send before its proof. `pg` itself checks that the first three follow SCRAM. */
const BEFORE_PROOF = new Set([
  'authenticationSASL',
  'authenticationSASLContinue',
  'authenticationSASLFinal',
  'errorMessage',
  'notice',
  // Events of the connection itself.
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
    const handled = emit(event, ...args);
    // `pg` verifies the server's signature while it handles this event, and emits an error if it is wrong.
    if (event === 'authenticationSASLFinal' && !refused) proved = true;
    // After any error before the proof, the connection must not send anything else.
    if (event === 'error' && !proved) {
      refused = true;
      connection.stream.destroy();
    }
    return handled;
  };
}

// bigint columns hold counts that stay far below 2^53.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);

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

/** Timeouts in milliseconds. */
interface Patience {
  /** Time to wait for a connection, new or released by another user of the pool. */
  connection: number;
  /** Time to wait for the result of a statement. Absent: no limit. */
  statement?: number;
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

/** Default timeouts of a pool. */
export const PATIENCE: Patience = { connection: 5000 };

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
  const pool: pg.Pool = new pg.Pool({
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
  pool.on('release', (error) => {
    if (isForeignSession(error)) forgetPooling(url);
  });
  // A connection that is ended during its release emits its error after the pool removed its own listener.
  pool.on('connect', (client) => client.on('error', () => {}));
  bindConnectToSpan(pool);
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

// biome-ignore lint/suspicious/noExplicitAny: `pg` accepts a text or an object, then values or a callback.
type Query = (...given: any[]) => any;

/** Parent spans of connections that are inside a transaction. */
const parentSpans = new WeakMap<object, Span>();

/**
 * Assigns the statements of a connection to a span until it is called again; undefined removes the
 * assignment.
 */
export function workFor(connection: object, span: Span | undefined): void {
  if (span) parentSpans.set(connection, span);
  else parentSpans.delete(connection);
}

/**
 * Creates a span for each statement that is sent as part of a recorded span. Background statements, such as
 * heartbeats, get none. Does nothing if tracing is off.
 */
function traceStatements(client: pg.Client): void {
  const sdk = tracing;
  if (!sdk) return;
  const query = client.query.bind(client) as Query;
  client.query = ((...given: unknown[]) => {
    const [statement] = given as [string | { name?: string; text?: string; submit?: unknown }];
    const parent = parentSpans.get(client) ?? sdk.recording();
    if (!parent || typeof (statement as { submit?: unknown })?.submit === 'function') return query(...given);
    const operation = nameOf(statement);
    const span = sdk.begin(operation, { kind: 'CLIENT', parent });
    span.setAttribute('db.system.name', 'postgresql').setAttribute('db.operation.name', operation);
    const end = (error: unknown) => {
      if (error) sdk.failSpan(span, kindOf(error));
      span.end();
    };
    const last = given.length - 1;
    const answer = given[last];
    if (typeof answer === 'function') {
      given[last] = (error: unknown, result: unknown) => {
        end(error);
        answer(error, result);
      };
      return query(...given);
    }
    return endWith(query(...given), end);
  }) as typeof client.query;
}

function endWith(answer: Promise<unknown>, end: (error: unknown) => void): Promise<unknown> {
  answer.then(() => end(undefined), end);
  return answer;
}

/**
 * Makes a caller that waited for a connection continue in its own span, and not in the span of the code that
 * released the connection.
 */
function bindConnectToSpan(pool: pg.Pool): void {
  const sdk = tracing;
  if (!sdk) return;
  const connect = pool.connect.bind(pool) as Query;
  pool.connect = ((done?: Query) => (done ? connect(sdk.bind(done)) : connect())) as typeof pool.connect;
}

/** Matches the first word after spaces, comments and parentheses. */
const FIRST_WORD = /^(?:\s|--[^\n]*\n|\/\*[^*]*\*\/|\()*([A-Za-z]+)/;

/**
 * Returns the name of a prepared statement, or the first word of any other statement. Never returns values or
 * text that may contain them.
 */
function nameOf(statement: string | { name?: string; text?: string }): string {
  if (typeof statement !== 'string' && statement.name) return statement.name;
  const text = typeof statement === 'string' ? statement : (statement.text ?? '');
  return FIRST_WORD.exec(text)?.[1]?.toLowerCase() ?? 'statement';
}
