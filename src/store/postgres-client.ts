import pg from 'pg';
import { kindOf, type Span, tracing } from '../platform/tracing.ts';
import { isForeignSession, isStalePlan } from './error-cause.ts';
import { statementForWorkspace, type TransactionScope } from './one-workspace.ts';
import {
  asOptions,
  asStatements,
  beginWith,
  boundOf,
  knownPooling,
  type Pooling,
  type PoolMode,
  poolingOf,
  type SessionSettings,
} from './pooling.ts';
import { requiresScram, ScramConnection } from './scram-connection.ts';

// bigint columns hold counts that stay far below 2^53.
pg.types.setTypeParser(pg.types.builtins.INT8, Number);

// biome-ignore lint/suspicious/noExplicitAny: `pg` accepts a text or an object, then values or a callback.
type Query = (...given: any[]) => any;

/** A statement as an object. `pg` also accepts an object that sends itself. */
interface Statement {
  name?: string;
  text: string;
  values?: unknown[];
  submit?: unknown;
}

/** State of the current transaction of a connection. */
interface TransactionState extends TransactionScope {
  lastValues: Map<string, string>;
}

/**
 * Matches statements that begin or end a transaction, after which the row in `workspace_places` may be gone.
 */
const BOUND = /^\s*(?:begin|commit|rollback)\b(?!\s+to\b)/i;
const BEGIN = /^\s*begin\b/i;
const SETS = /^\s*set local\b/i;

/** Timeouts in milliseconds. */
export interface Patience {
  /** Time to wait for a connection, new or released by another user of the pool. */
  connection: number;
  /** Time to wait for the result of a statement. Absent: no limit. */
  statement?: number;
}

/** Default timeouts of a pool. */
export const PATIENCE: Patience = { connection: 5000 };

/**
 * A client of `pg` with everything that Penstock adds to it:
 *
 * - `require_auth=scram-sha-256` in its URL: the server has to prove by SCRAM that it knows the password. Before that it
 *   does not receive the password, its md5, or a statement. Plain `pg` answers every kind of authentication that the
 *   server requests, and continues if the server requests no authentication.
 * - Session settings, also through a pooler in transaction mode.
 * - On a distributed Postgres: the form of each statement for one workspace, and the scope of the transaction.
 * - A span for each statement that is sent as part of a recorded span.
 */
export class PostgresClient extends pg.Client {
  readonly #url: string;
  readonly #session: SessionSettings;
  /** Whether the session settings were sent with the startup message. */
  readonly #isSet: boolean;
  /** Set if the connection goes through a pooler in transaction mode. */
  #pooled: { settings: string; pooling: Pooling } | undefined;
  #isInTransaction = false;
  /** Statements that begin each transaction on a distributed Postgres. */
  #planner: string[] = [];
  /** State of the current transaction on a distributed Postgres; undefined on a single one. */
  scope: TransactionState | undefined;
  /** Span of the transaction to which the statements belong; undefined: they belong to the active span. */
  parentSpan: Span | undefined;
  /** Whether the pool closes the connection after one use. */
  isSingleUse = false;

  constructor(config: string | PostgresClientConfig = {}) {
    const { connectionString = '', session = {} } = typeof config === 'string' ? {} : config;
    const url = typeof config === 'string' ? config : connectionString;
    const isSet = Object.keys(session).length > 0 && knownPooling(url)?.mode === 'none';
    const options = isSet ? { ...(config as pg.ClientConfig), options: asOptions(session) } : config;
    const connection = requiresScram(url) ? openScramConnection(options) : undefined;
    super(connection ? ({ ...asObject(options), connection } as pg.ClientConfig) : options);
    connection?.useTls(this);
    this.#url = url;
    this.#session = session;
    this.#isSet = isSet;
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
  override query(statement: any, ...given: any[]): any;
  // biome-ignore lint/suspicious/noExplicitAny: `pg` accepts a text or an object, then values or a callback.
  override query(statement: any, ...given: any[]): any {
    return this.scope
      ? this.#queryForWorkspace(this.scope, [statement, ...given])
      : this.#queryTraced([statement, ...given]);
  }

  /**
   * Sends all later statements in their form for one workspace.
   * @param planner statements that begin each transaction
   */
  distribute(planner: string[]): void {
    this.#planner = planner;
    this.scope = { lastValues: new Map(), workspaceId: undefined };
  }

  #queryForWorkspace(
    scope: TransactionState,
    [statement, ...given]: [string | Statement, ...unknown[]],
  ): unknown {
    const [values] = given;
    if (typeof statement === 'string') {
      if (BOUND.test(statement)) scope.workspaceId = undefined;
      if (BEGIN.test(statement) || SETS.test(statement)) {
        const settings = BEGIN.test(statement) ? this.#planner : [];
        return this.#sendSeparately([...statement.split(';'), ...settings]);
      }
      if (!Array.isArray(values)) return this.#queryTraced([statement, ...given]);
      const rewritten = statementForWorkspace(statement, values, scope);
      return this.#queryTraced([rewritten.text, rewritten.values, ...given.slice(1)]);
    }
    if (typeof statement.submit === 'function' || statement.text === undefined)
      return this.#queryTraced([statement, ...given]);
    const ownValues = statement.values ?? (Array.isArray(values) ? values : []);
    const rest = Array.isArray(values) ? given.slice(1) : given;
    const rewritten = statementForWorkspace(statement.text, ownValues, scope);
    // A name of a prepared statement must always have the same text.
    const name = statement.name && rewritten.isDeclared ? `${statement.name}-in-place` : statement.name;
    return this.#queryTraced([
      { ...statement, ...(name && { name }), text: rewritten.text, values: rewritten.values },
      ...rest,
    ]);
  }

  /**
   * Sends each statement in a message of its own. Citus propagates the whole message of a setting once for each
   * setting in it.
   */
  async #sendSeparately(statements: string[]): Promise<unknown> {
    const [first] = await Promise.all(statements.map((statement) => this.#queryTraced([statement])));
    return first;
  }

  /**
   * Creates a span for a statement that is sent as part of a recorded span. Background statements, such as heartbeats,
   * get no span.
   */
  #queryTraced(given: [string | Statement, ...unknown[]]): unknown {
    const sdk = tracing;
    const parent = sdk && (this.parentSpan ?? sdk.recording());
    const [statement] = given;
    if (!parent || (typeof statement === 'object' && typeof statement?.submit === 'function'))
      return this.#send(given);
    const operation = nameOf(statement);
    const span = sdk.begin(operation, { kind: 'CLIENT', parent });
    span.setAttribute('db.system.name', 'postgresql').setAttribute('db.operation.name', operation);
    const end = (error: unknown) => {
      if (error) sdk.failSpan(span, kindOf(error));
      span.end();
    };
    const at = given.findIndex((one) => typeof one === 'function');
    if (at < 0) return endWith(this.#send(given) as Promise<unknown>, end);
    const answer = given[at] as Query;
    given[at] = (error: unknown, result: unknown) => {
      end(error);
      answer(error, result);
    };
    return this.#send(given);
  }

  #send(given: [string | Statement, ...unknown[]]): unknown {
    if (this.#pooled === undefined) return (super.query as Query)(...given);
    return this.#queryPooled(this.#pooled, given);
  }

  /**
   * Sends a statement through a pooler in transaction mode. Each transaction begins with the session
   * settings. A statement outside a transaction is wrapped in one of its own; begin, statement and commit are
   * sent in one write. The statement's name is omitted if the pooler does not support prepared statements.
   */
  #queryPooled(
    { settings, pooling }: { settings: string; pooling: Pooling },
    [statement, values, done]: [string | Statement, ...unknown[]],
  ): unknown {
    const send = (...given: unknown[]) => (super.query as Query)(...given);
    const isText = typeof statement === 'string';
    if (!isText && (typeof statement.submit === 'function' || statement.text === undefined))
      return send(statement, values, done);
    const text = isText ? statement : statement.text;
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

const asObject = (config: string | pg.ClientConfig): pg.ClientConfig =>
  typeof config === 'string' ? { connectionString: config } : config;

function openScramConnection(config: string | pg.ClientConfig): ScramConnection {
  const { stream, keepAlive = false, keepAliveInitialDelayMillis = 0 } = asObject(config);
  return new ScramConnection({ ...(stream && { stream }), keepAlive, keepAliveInitialDelayMillis });
}

/** Options of a `pg` client, and Postgres settings for the session. */
interface PostgresClientConfig extends pg.ClientConfig {
  session?: SessionSettings;
}

function endWith(answer: Promise<unknown>, end: (error: unknown) => void): Promise<unknown> {
  answer.then(() => end(undefined), end);
  return answer;
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
