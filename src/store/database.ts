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
  readonly #url: string;
  readonly #session: SessionSettings;
  /** Whether the server has got the settings of the session with the start of the connection. */
  readonly #isSet: boolean;
  /** Set where a pooler hands out servers by transaction. */
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
   * Gives a new connection its settings: at once, or with each of its transactions where a pooler hands out servers by
   * transaction. Call it once, before anything else.
   *
   * @throws {UnsupportedPooling} for a pooler in statement mode
   */
  async beginSession(): Promise<PoolMode> {
    const pooling = await poolingOf(this.#url, this, () => this.#another());
    const hasSettings = Object.keys(this.#session).length > 0;
    if (pooling.mode === 'transaction')
      this.#pooled = { settings: asStatements(this.#session, 'local'), pooling };
    else if (hasSettings && !this.#isSet) await this.query(asStatements(this.#session, 'session'));
    return pooling.mode;
  }

  #another(): pg.Client {
    const { connection } = PATIENCE;
    return new PostgresClient({
      ...{ connectionString: this.#url, connectionTimeoutMillis: connection, query_timeout: connection },
    });
  }

  override query<Row extends pg.QueryResultRow = pg.QueryResultRow>(
    statement: string | pg.QueryConfig,
    values?: unknown[],
  ): Promise<pg.QueryResult<Row>>;
  // biome-ignore lint/suspicious/noExplicitAny: As `pg` has it: text or an object, values, a function.
  override query(statement: any, values?: any, done?: any): any;
  // biome-ignore lint/suspicious/noExplicitAny: As `pg` has it: text or an object, values, a function.
  override query(statement: any, values?: any, done?: any): any {
    if (this.#pooled === undefined) return super.query(statement, values, done);
    return this.#queryPooled(this.#pooled, [statement, values, done]);
  }

  /**
   * Sends a statement through a pooler that hands out servers by transaction. A transaction begins with the settings of
   * the session, and a statement outside of a transaction gets one of its own: the three leave in one write. A name
   * is left out where the pooler does not keep prepared statements.
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
    const answer = this.#isInTransaction || settings === '' ? send(named, asValues(values)) : alone();
    const noted = (answer as Promise<unknown>).catch((error: unknown) => {
      // The pooler's copy of the statement is of an older shape, or gone: from now on each one is parsed anew.
      if (isStalePlan(error) || isForeignSession(error)) pooling.keepsNames = false;
      throw error;
    });
    if (!callback) return noted;
    noted.then((result) => callback(null, result), callback);
    return undefined;

    function alone(): Promise<unknown> {
      const sent = [send(`begin; ${settings}`), send(named, asValues(values)), send('commit')];
      return Promise.all(sent).then(([, result]) => result);
    }
  }
}

/** Values of a statement where `pg` also takes a callback in their place. */
const asValues = (given: unknown) => (typeof given === 'function' ? undefined : given);

/** What `pg` takes, and settings of Postgres for the session. */
export interface PostgresClientConfig extends pg.ClientConfig {
  session?: SessionSettings;
}

/**
 * The option `verify` of a pool whose connections need a session of the server's, for instance to listen.
 *
 * @param what needs it, and what to do: the end of a sentence
 */
export function requireSession(what: string) {
  return (client: pg.PoolClient, done: (error?: Error) => void): void => {
    beginWholeSession(client as unknown as PostgresClient, what).then(() => done(), done);
  };
}

/** As `beginSession`. @throws {UnsupportedPooling} where a pooler hands out servers by transaction */
export async function beginWholeSession(client: PostgresClient, what: string): Promise<void> {
  if ((await client.beginSession()) !== 'transaction') return;
  throw new UnsupportedPooling(
    `${what} needs a session of its own, and the address leads through a connection pooler in transaction mode: set DATABASE_DIRECT_URL to the address of Postgres itself`,
  );
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
interface Patience {
  /** For a connection, whether a new one or one of the pool's that another has now. */
  connection: number;
  /** For the answer to a statement. Absent: for ever. */
  statement?: number;
}

/** Where statements go, and how long they may take. */
export interface PoolOptions {
  /** Server settings for the pool's sessions, times in milliseconds. */
  session?: SessionSettings;
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

/**
 * Milliseconds after which a pool closes a connection that it does not need. It is longer than the interval of every poll: a
 * poll that had to open a connection each time would spend most of its processor time on that.
 */
export const IDLE_TIMEOUT = 20_000;

/** For a connection of the pool, by default. */
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
    // Statements leave as they are given, without waiting for the answers to those before: a transaction's
    // independent ones cost one round trip together.
    pipeline: true,
  } as pg.PoolConfig);
  // An idle connection that the server closes is replaced at the next use; without a listener it would end the process.
  pool.on('error', () => {});
  // The address leads to other sessions than it did: a pooler stands before Postgres now, or its mode has changed.
  pool.on('release', (error) => {
    if (isForeignSession(error)) forgetPooling(url);
  });
  // One that is ended while it is given back reports it when nobody listens any more.
  pool.on('connect', (client) => client.on('error', () => {}));
  bindConnects(pool);
  return pool;
}

const refusedDistribution = () =>
  new UnsupportedPooling(
    'the tables are distributed by Citus, and DATABASE_URL leads through a connection pooler in transaction mode: set DATABASE_URL to the address of the coordinator itself, or pool_mode to session',
  );

/**
 * A value as a text column takes it: with neither U+0000 nor lone surrogates, both of which a caller's words may have.
 */
export function storable(value: unknown): string {
  return String(value).toWellFormed().replaceAll('\u0000', '\u2400');
}

/** SQL: a time as ISO 8601 in UTC, whatever the session's time zone, with milliseconds or with all microseconds. */
export const iso = (time: string, fraction: 'MS' | 'US' = 'MS') =>
  `to_char(${time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.${fraction}"Z"')`;

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

// biome-ignore lint/suspicious/noExplicitAny: As `pg` has it: text or an object, values, a function.
type Query = (...given: any[]) => any;

/** Connections of transactions, and the spans that they are part of. */
const working = new WeakMap<object, Span>();

/** From now on the statements of a connection are part of this span, until it is said that they are of none. */
export function workFor(connection: object, span: Span | undefined): void {
  if (span) working.set(connection, span);
  else working.delete(connection);
}

/**
 * Makes a span of each statement of a connection that is sent as part of one that is recorded. What nobody asked for,
 * such as a heartbeat, has none. While nothing is traced the connection stays as it is.
 */
function traceStatements(client: pg.Client): void {
  const sdk = tracing;
  if (!sdk) return;
  const query = client.query.bind(client) as Query;
  client.query = ((...given: unknown[]) => {
    const [statement] = given as [string | { name?: string; text?: string; submit?: unknown }];
    const parent = working.get(client) ?? sdk.recording();
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
 * Whoever waits for a connection of the pool goes on as part of its own span, not of that of who gave the connection back.
 */
function bindConnects(pool: pg.Pool): void {
  const sdk = tracing;
  if (!sdk) return;
  const connect = pool.connect.bind(pool) as Query;
  pool.connect = ((done?: Query) => (done ? connect(sdk.bind(done)) : connect())) as typeof pool.connect;
}

/** Behind what may stand before it: spaces, comments, brackets. */
const FIRST_WORD = /^(?:\s|--[^\n]*\n|\/\*[^*]*\*\/|\()*([A-Za-z]+)/;

/** A prepared statement's own name; of any other its first word. Never a value, nor a text that may hold one. */
function nameOf(statement: string | { name?: string; text?: string }): string {
  if (typeof statement !== 'string' && statement.name) return statement.name;
  const text = typeof statement === 'string' ? statement : (statement.text ?? '');
  return FIRST_WORD.exec(text)?.[1]?.toLowerCase() ?? 'statement';
}
