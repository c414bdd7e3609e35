import pg from 'pg';
import type { PrismaClient } from '../generated/prisma/client.ts';
import { kindOf, type Span, tracing } from '../platform/tracing.ts';
import { findDistribution } from './distributed.ts';

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
interface Patience {
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

/** Milliseconds after which a pool closes a connection that it does not need. */
export const IDLE_TIMEOUT = 3000;

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
  // One that is ended while it is given back reports it when nobody listens any more.
  pool.on('connect', (client) => client.on('error', () => {}));
  bindConnects(pool);
  return pool;
}

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
