import pg from 'pg';
import { within } from '../platform/lifecycle.ts';
import { RefusedAddress } from '../platform/reach.ts';
import {
  assertCanonical,
  EARLIEST,
  findColumns,
  type KnownColumn,
  LATEST,
  MOST_UNREADABLE,
  mostCharacters,
  requireUpdatedAt,
  TIME_PATTERN,
  toRow,
} from './columns.ts';
import {
  type Answered,
  type Asked,
  ask,
  createClient,
  endClient,
  type Patience,
  type Row,
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

/** Of the connection: nobody but the owner can mend address and certificate. */
const CONFIG_CODES = new Set(['ENOTFOUND', 'EAI_AGAIN', 'ECONNREFUSED', 'EHOSTUNREACH', 'ENETUNREACH']);
/** Not signed in, no such database, no such schema, name or permission in the statement, a value that a view chokes on. */
const CONFIG_CLASSES = ['28', '3D', '3F', '42', '22'];
const TLS = /SSL|TLS|certificate/i;

/**
 * @param where host, port and database
 * @returns what the owner reads; Postgres's own words hold names and never a password
 */
function toSourceError(error: unknown, where: string): SourceError {
  if (error instanceof SourceError) return error;
  if (error instanceof RefusedAddress) return new SourceError('config', error.message, { cause: error });
  const reason = isConfig(error) ? 'config' : 'failed';
  return new SourceError(reason, `${where}: ${messageOf(error)}`, { cause: error });
}

function isConfig(error: unknown): boolean {
  const code = codeOf(error);
  if (error instanceof pg.DatabaseError) return CONFIG_CLASSES.some((known) => code.startsWith(known));
  return CONFIG_CODES.has(code) || code.startsWith('ERR_TLS') || TLS.test(messageOf(error));
}

function codeOf(error: unknown): string {
  const { code } = error as { code?: unknown };
  if (typeof code === 'string') return code;
  // Of a name with several addresses, the attempts come together.
  return error instanceof AggregateError ? codeOf(error.errors[0]) : '';
}

function messageOf(error: unknown): string {
  if (error instanceof AggregateError && !error.message) return messageOf(error.errors[0]);
  return error instanceof Error ? error.message : String(error);
}

const FORM = `'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'`;
/** As `format_type` calls them. */
const TEXTS = /^(text|character|citext|name)/;

/**
 * The name as in SQL: dots part it, what is in double quotes is taken as it stands, the rest is folded to lower case.
 * The result can be put into a statement, whatever the name.
 * @throws {SourceError} `config` when a part is empty or a quote is not closed
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
  /** The column as a value that can be compared; null for a text that is no time. */
  value: string;
  /** Type of literals beside it. */
  type: 'timestamp' | 'timestamptz';
}

function timeOf(column: SourceColumn, where: string): Time {
  const name = pg.escapeIdentifier(column.name);
  if (column.type.startsWith('timestamp with time zone')) return { value: name, type: 'timestamptz' };
  if (column.type.startsWith('timestamp') || column.type === 'date') {
    // Without a zone it is UTC; a date is its first moment.
    return { value: column.type === 'date' ? `${name}::timestamp` : name, type: 'timestamp' };
  }
  if (TEXTS.test(column.type)) {
    const isTime = `${name} ~ ${pg.escapeLiteral(TIME_PATTERN)} and ${name} not like '0000%'`;
    // The session's zone is UTC, which a text without an offset is read in.
    return { value: `case when ${isTime} then ${name}::timestamptz end`, type: 'timestamptz' };
  }
  throw new SourceError(
    'config',
    `${where}: ${column.name} is of type ${column.type}, which is not a time type`,
  );
}

export interface RowStatements {
  /** Of each: UPDATED_AT in its wire form or null, as it stood there, then `columns`. */
  readable: string;
  unreadable: string;
  columns: Exclude<KnownColumn, 'updated_at'>[];
}

/**
 * The statements in the words that Redshift knows, too. Two of them, so that an index on UPDATED_AT serves either.
 * @param table as from `quoteTable`
 */
function rowStatements(
  table: string,
  { found, described }: { found: ReadonlyMap<KnownColumn, string>; described: readonly SourceColumn[] },
  since: string | undefined,
): RowStatements {
  if (since !== undefined) assertCanonical(since);
  const columnOf = (known: KnownColumn) => described.find(({ name }) => name === found.get(known))!;
  const updatedAt = columnOf('updated_at');
  const time = timeOf(updatedAt, table);
  const columns = [...found.keys()].filter((column) => column !== 'updated_at');
  const rows = [
    `select ${time.value} as at, left(${pg.escapeIdentifier(updatedAt.name)}::text, ${MOST_UNREADABLE}) as shown`,
    ...columns.map(
      (column, index) => `, left(${asText(columnOf(column))}, ${mostCharacters(column)}) as c${index}`,
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
  // Redshift's type for JSON, which it does not cast.
  return type === 'super' ? `json_serialize(${column})` : `${column}::text`;
}

/** The protocol's limit of a query is one hour. */
const STATEMENT_MS = 3_600_000;
const patient: Patience = {
  connect: 10_000,
  answer: 60_000,
  read: STATEMENT_MS + 60_000,
  perRow: 10,
  end: 5000,
};
const CANCEL_MS = 5000;
/** More columns than a table can have. */
const MOST_COLUMNS = 10_000;

/**
 * Postgres, and what speaks its wire protocol and its SQL: Redshift among it. Rows are read through a cursor, in one
 * transaction that only reads and that sees the table as it was at its start.
 * @throws {SourceError} `config` for a wrong address, password, database or TLS setting; `failed` when there is no answer
 */
export async function openPostgres(
  definition: PostgresDefinition,
  credentials: Extract<Credentials, { user: string }>,
  { patience = patient, ...options }: SourceOptions & { patience?: Patience },
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

  async function* query(statement: string, asked: Asked): AsyncGenerator<Row[], Answered> {
    try {
      return yield* ask(client, statement, asked);
    } catch (error) {
      const told = toSourceError(lost ?? error, where);
      if (told.message.startsWith(where)) throw told;
      throw new SourceError(told.reason, `${where}: ${told.message}`, { cause: told });
    }
  }

  /** A statement with few rows, or none. */
  async function run(statement: string, rows = 0, milliseconds = patience.answer) {
    const answer = query(statement, { rows, milliseconds });
    const found: Row[] = [];
    for (let next = await answer.next(); ; next = await answer.next()) {
      if (next.done) return { rows: found, ...next.value };
      // A batch is full only where the server sends texts that nobody has asked for.
      if (found.length > 0) throw new SourceError('failed', `${where}: the answer is too long`);
      found.push(...next.value);
    }
  }

  async function describe(): Promise<SourceColumn[]> {
    const { fields } = await run(`select * from ${table} limit 0`);
    if (fields.length === 0) throw new SourceError('config', `${where}: ${definition.table} has no columns`);
    if (fields.length > MOST_COLUMNS)
      throw new SourceError('config', `${where}: ${definition.table} has more than ${MOST_COLUMNS} columns`);
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
      const found = findColumns(names, options.serviceIdField, definition.table);
      requireUpdatedAt(found, definition.table);
      const statements = rowStatements(table, { found, described }, since);
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

  /** Ends the statement at the server, which would notice a closed connection only when it has rows to send. */
  async function cancel({ processID }: { processID?: number }): Promise<void> {
    const other = createClient(definition, credentials, clientOptions);
    other.on('error', () => {});
    const work = other.connect().then(() => other.query(`select pg_cancel_backend(${Number(processID)})`));
    await within(CANCEL_MS, work).catch(() => {});
    await endClient(other, patience);
  }

  return { describe, rowsSince, close: () => endClient(client, patience) };
}
