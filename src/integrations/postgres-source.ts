import pg from 'pg';
import { withTimeout } from '../platform/lifecycle.ts';
import { RefusedAddress } from '../platform/reach.ts';
import {
  assertCanonical,
  EARLIEST,
  findColumns,
  type KnownColumn,
  LATEST,
  MAX_UNREADABLE,
  maxCharacters,
  requireUpdatedAt,
  TIME_PATTERN,
  toRow,
} from './columns.ts';
import {
  createClient,
  endClient,
  type QueryLimits,
  type QueryResult,
  type Row,
  streamQuery,
  type TimeLimits,
} from './guarded-client.ts';
import {
  type Credentials,
  type PostgresDefinition,
  type ReadOptions,
  type Source,
  type SourceColumn,
  SourceError,
  type SourceOptions,
  type SourceRow,
} from './source.ts';

/** Error codes of the connection. Only the owner can fix the address. */
const CONFIG_CODES = new Set(['ENOTFOUND', 'EAI_AGAIN', 'ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH']);
/**
 * SQLSTATE classes for a failed sign-in, an unknown database or schema, a name or permission in the
 * statement, and a value that fails in a view.
 */
const CONFIG_CLASSES = ['28', '3D', '3F', '42', '22'];
const TLS = /SSL|TLS|certificate/i;

/**
 * @param where host, port and database
 * @returns an error for the owner; Postgres's messages contain names but never a password
 */
function toSourceError(error: unknown, where: string): SourceError {
  if (error instanceof SourceError) return error;
  if (error instanceof RefusedAddress) return new SourceError('config', error.message, { cause: error });
  const reason = isConfig(error) ? 'config' : 'failed';
  return new SourceError(reason, `${where}: ${messageOf(error)}`, { cause: error });
}

function isConfig(error: unknown): boolean {
  const code = codeOf(error);
  if (error instanceof pg.DatabaseError)
    return CONFIG_CLASSES.some((configClass) => code.startsWith(configClass));
  return CONFIG_CODES.has(code) || code.startsWith('ERR_TLS') || TLS.test(messageOf(error));
}

function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  if (typeof code === 'string') return code;
  // If a name has several addresses, the error contains one error per attempt.
  return error instanceof AggregateError ? codeOf(error.errors[0]) : '';
}

function messageOf(error: unknown): string {
  if (error instanceof AggregateError && !error.message) return messageOf(error.errors[0]);
  return error instanceof Error ? error.message : String(error);
}

const FORM = `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'`;
/** Text types under their names in `format_type`. */
const TEXTS = /^(text|character|citext|name)/;

/**
 * Quotes a table name. Dots separate its parts, quoted parts are used unchanged, and other parts are
 * converted to lower case, as in SQL. The result is safe in a statement for any name.
 * @throws {SourceError} `config` if a part is empty or a quote is not closed
 */
function quoteTable(name: string): string {
  const parts = [...name.matchAll(/(?:^|\.)(?:"((?:[^"]|"")+)"|([^".]+))/gy)];
  if (parts.length === 0 || parts.reduce((length, [part]) => length + part.length, 0) !== name.length) {
    throw new SourceError(
      'config',
      `the table ${name} is not a valid name: write [schema.]table, with "…" around parts in mixed case`,
    );
  }
  return parts
    .map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain!.toLowerCase())
    .map((part) => pg.escapeIdentifier(part))
    .join('.');
}

interface Time {
  /** Expression of the column as a value that can be compared; null for a text that is not a time. */
  value: string;
  /** Type of literals that are compared with the value. */
  type: 'timestamp' | 'timestamptz';
}

function timeOf(column: SourceColumn, where: string): Time {
  const name = pg.escapeIdentifier(column.name);
  if (column.type.startsWith('timestamp with time zone')) return { value: name, type: 'timestamptz' };
  if (column.type.startsWith('timestamp') || column.type === 'date') {
    // A timestamp without a time zone is in UTC. A date means its first moment.
    return { value: column.type === 'date' ? `${name}::timestamp` : name, type: 'timestamp' };
  }
  if (TEXTS.test(column.type)) {
    const isTime = `${name} ~ ${pg.escapeLiteral(TIME_PATTERN)} and ${name} not like '0000%'`;
    // The time zone of the session is UTC, which applies to texts without an offset.
    return { value: `case when ${isTime} then ${name}::timestamptz end`, type: 'timestamptz' };
  }
  throw new SourceError(
    'config',
    `${where}: ${column.name} is of type ${column.type}, which is not a time type`,
  );
}

interface RowStatements {
  /**
   * Statements for rows with UPDATED_AT in its canonical form or null, its original text, and then `columns`.
   */
  readable: string;
  unreadable: string;
  columns: Exclude<KnownColumn, 'updated_at'>[];
}

/**
 * Returns the statements, in SQL that Redshift supports as well. There are two of them, so that an index on
 * UPDATED_AT can serve each.
 * @param table name quoted by `quoteTable`
 */
function rowStatements(
  table: string,
  {
    nameByColumn,
    described,
  }: { nameByColumn: ReadonlyMap<KnownColumn, string>; described: readonly SourceColumn[] },
  since: string | undefined,
): RowStatements {
  if (since !== undefined) assertCanonical(since);
  const columnOf = (column: KnownColumn) => described.find(({ name }) => name === nameByColumn.get(column))!;
  const updatedAt = columnOf('updated_at');
  const time = timeOf(updatedAt, table);
  const columns = [...nameByColumn.keys()].filter((column) => column !== 'updated_at');
  const rows = [
    `select ${time.value} as at, left(${pg.escapeIdentifier(updatedAt.name)}::text, ${MAX_UNREADABLE}) as shown`,
    ...columns.map(
      (column, index) => `, left(${asText(columnOf(column))}, ${maxCharacters(column)}) as c${index}`,
    ),
    ` from ${table}`,
  ].join('');
  const literal = (text: string) =>
    time.type === 'timestamptz' ? `'${text}+00'::timestamptz` : `'${text}'::timestamp`;
  const from = literal(since === undefined ? EARLIEST : since.replace('T', ' ').replace('Z', ''));
  const text = `to_char(at${time.type === 'timestamptz' ? " at time zone 'UTC'" : ''}, ${FORM})`;
  const others = columns.map((_, index) => `, c${index}`).join('');
  return {
    readable: `select ${text}, null::text${others} from (${rows}) s where at >= ${from} and at <= ${literal(LATEST)} order by at`,
    unreadable: `select null::text, shown${others} from (${rows}) s where at is null or at < ${literal(EARLIEST)} or at > ${literal(LATEST)}`,
    columns,
  };
}

function asText({ name, type }: SourceColumn): string {
  const column = pg.escapeIdentifier(name);
  // Redshift's type for JSON cannot be cast to text.
  return type === 'super' ? `json_serialize(${column})` : `${column}::text`;
}

/** Timeout of a statement: the protocol of warehouse syncs limits a query to one hour. */
const STATEMENT_MS = 3_600_000;
const DEFAULT_LIMITS: TimeLimits = {
  connect: 10_000,
  answer: 60_000,
  read: STATEMENT_MS + 60_000,
  perRow: 10,
  end: 5000,
};
const CANCEL_MS = 5000;
/** Maximum columns of a table, which Postgres does not reach. */
const MAX_COLUMNS = 10_000;

/**
 * Opens Postgres or a server with its wire protocol and SQL, for example Redshift. Rows are read through a
 * cursor, in one read-only transaction with a single snapshot.
 * @throws {SourceError} `config` for a wrong address, password, database or TLS setting; `failed` if the
 * server does not respond
 */
export async function openPostgres(
  definition: PostgresDefinition,
  credentials: Extract<Credentials, { user: string }>,
  { patience = DEFAULT_LIMITS, ...options }: SourceOptions & { patience?: TimeLimits },
): Promise<Source> {
  const where = `Postgres at ${definition.host}:${definition.port}/${definition.database}`;
  const table = quoteTable(definition.table);
  const clientOptions = { reach: options.reach, patience };
  const client = createClient(definition, credentials, clientOptions);
  let lost: Error | undefined;
  client.on('error', (error) => {
    lost ??= error;
  });
  try {
    await client.connect();
    await run(`set statement_timeout to ${STATEMENT_MS}`);
    await run("set timezone to 'UTC'");
  } catch (error) {
    await endClient(client, patience);
    throw toSourceError(lost ?? error, where);
  }

  async function* query(statement: string, limits: QueryLimits): AsyncGenerator<Row[], QueryResult> {
    try {
      return yield* streamQuery(client, statement, limits);
    } catch (error) {
      const sourceError = toSourceError(lost ?? error, where);
      if (sourceError.message.startsWith(where)) throw sourceError;
      throw new SourceError(sourceError.reason, `${where}: ${sourceError.message}`, { cause: sourceError });
    }
  }

  /** Runs a statement that returns few rows or none. */
  async function run(statement: string, rows = 0, milliseconds = patience.answer) {
    const answer = query(statement, { rows, milliseconds });
    const received: Row[] = [];
    for (let next = await answer.next(); ; next = await answer.next()) {
      if (next.done) return { rows: received, ...next.value };
      // A second batch means that the server sent texts which were not requested.
      if (received.length > 0)
        throw new SourceError('failed', `${where}: the server sent more rows than requested`);
      received.push(...next.value);
    }
  }

  async function describe(): Promise<SourceColumn[]> {
    const { fields } = await run(`select * from ${table} limit 0`);
    if (fields.length === 0) throw new SourceError('config', `${where}: ${definition.table} has no columns`);
    if (fields.length > MAX_COLUMNS)
      throw new SourceError('config', `${where}: ${definition.table} has more than ${MAX_COLUMNS} columns`);
    const oids = [...new Set(fields.map(({ dataTypeID }) => dataTypeID))];
    const { rows } = await run(
      `select oid, format_type(oid, null) from pg_type where oid in (${oids.join(', ')})`,
      oids.length,
    );
    const types = new Map(rows.map(([oid, type]) => [Number(oid), type!]));
    return fields.map(({ name, dataTypeID }) => ({ name, type: types.get(dataTypeID) ?? 'unknown' }));
  }

  async function* rowsSince(since: string | undefined, read: ReadOptions): AsyncGenerator<SourceRow[]> {
    read.signal.throwIfAborted();
    const stop = () =>
      void cancel(client as { processID?: number })
        .finally(() => endClient(client, patience))
        .catch(() => {});
    read.signal.addEventListener('abort', stop, { once: true });
    try {
      await run('begin transaction isolation level repeatable read read only');
      const described = await describe();
      const names = described.map(({ name }) => name);
      const nameByColumn = findColumns(names, options.serviceIdField, definition.table);
      requireUpdatedAt(nameByColumn, definition.table);
      const statements = rowStatements(table, { nameByColumn, described }, since);
      let milliseconds = patience.read;
      for (const statement of [statements.unreadable, statements.readable]) {
        await run(`declare penstock_rows cursor for ${statement}`, 0, milliseconds);
        for (let more = true; more; ) {
          read.signal.throwIfAborted();
          const answer = query(`fetch forward ${read.batch} from penstock_rows`, {
            rows: read.batch,
            milliseconds,
          });
          let count = 0;
          let next = await answer.next();
          for (; !next.done; next = await answer.next()) {
            count += next.value.length;
            yield next.value.map((cells) => toRow(cells, statements.columns));
          }
          milliseconds += count * patience.perRow - next.value.waited;
          more = count === read.batch;
        }
        await run('close penstock_rows');
      }
    } catch (error) {
      read.signal.throwIfAborted();
      throw error;
    } finally {
      read.signal.removeEventListener('abort', stop);
      if (!read.signal.aborted && !lost) await run('rollback').catch(() => {});
    }
  }

  /** Cancels the statement on the server, which would notice a closed connection only when it sends rows. */
  async function cancel({ processID }: { processID?: number }): Promise<void> {
    const other = createClient(definition, credentials, clientOptions);
    other.on('error', () => {});
    const work = other.connect().then(() => other.query(`select pg_cancel_backend(${Number(processID)})`));
    await withTimeout(CANCEL_MS, work).catch(() => {});
    await endClient(other, patience);
  }

  return { describe, rowsSince, close: () => endClient(client, patience) };
}
