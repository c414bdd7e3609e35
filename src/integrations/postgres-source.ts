import pg from 'pg';
import { within } from '../within.ts';
import { findColumns, requireUpdatedAt, toRow } from './columns.ts';
import type { Credentials, PostgresDefinition } from './definition.ts';
import { toSourceError } from './postgres/errors.ts';
import { quoteTable, rowStatements } from './postgres/statements.ts';
import { type ReadOptions, type Source, type SourceColumn, SourceError, type SourceRow } from './source.ts';

const CONNECT_MS = 10_000;
/** The protocol's limit of a query: one hour. */
const STATEMENT_MS = 3_600_000;
const CANCEL_MS = 5000;
/** Of one fetch, as far as the rows before it tell; a payload may have a megabyte. */
const FETCH_BYTES = 8_388_608;
const FIRST_FETCH = 100;

/**
 * Postgres, and what speaks its wire protocol and its SQL: Redshift among it. Rows are read through a cursor, in one
 * transaction that only reads and that sees the table as it was at its start.
 * @throws {SourceError} `config` for a wrong address, password, database or TLS setting; `failed` when there is no answer
 */
export async function openPostgres(
  definition: PostgresDefinition,
  credentials: Extract<Credentials, { user: string }>,
  options: { serviceIdField: string },
): Promise<Source> {
  const where = `Postgres at ${definition.host}:${definition.port}/${definition.database}`;
  const table = quoteTable(definition.table);
  const client = createClient(definition, credentials);
  let lost: Error | undefined;
  client.on('error', (error) => {
    lost ??= error;
  });
  try {
    await client.connect();
    await client.query(`set statement_timeout to ${STATEMENT_MS}`);
    await client.query("set timezone to 'UTC'");
  } catch (error) {
    await client.end().catch(() => {});
    throw toSourceError(error, where);
  }

  async function query(statement: string): Promise<pg.QueryArrayResult<(string | null)[]>> {
    try {
      return await client.query({ text: statement, rowMode: 'array', types: asTexts });
    } catch (error) {
      throw toSourceError(lost ?? error, where);
    }
  }

  async function describe(): Promise<SourceColumn[]> {
    const { fields } = await query(`select * from ${table} limit 0`);
    if (fields.length === 0) throw new SourceError('config', `${where}: ${definition.table} has no columns`);
    const oids = [...new Set(fields.map(({ dataTypeID }) => dataTypeID))];
    const { rows } = await query(
      `select oid, format_type(oid, null) from pg_type where oid in (${oids.join(', ')})`,
    );
    const types = new Map(rows.map(([oid, type]) => [Number(oid), type!]));
    return fields.map(({ name, dataTypeID }) => ({ name, type: types.get(dataTypeID) ?? 'unknown' }));
  }

  async function* rowsSince(since: string | undefined, read: ReadOptions): AsyncGenerator<SourceRow[]> {
    read.signal.throwIfAborted();
    const stop = () =>
      void cancel(definition, credentials, client).finally(() => client.end().catch(() => {}));
    read.signal.addEventListener('abort', stop, { once: true });
    try {
      await query('begin transaction isolation level repeatable read read only');
      const described = await describe();
      const names = described.map(({ name }) => name);
      const found = findColumns(names, options.serviceIdField, definition.table);
      requireUpdatedAt(found, definition.table);
      const statements = rowStatements(table, found, described, since);
      const toRows = (rows: (string | null)[][]) =>
        rows.map(([updatedAt, shown, ...values]) => toRow(updatedAt!, shown!, statements.columns, values));
      for (const statement of [statements.unreadable, statements.readable]) {
        for await (const rows of fetchAll(query, statement, read)) yield toRows(rows);
      }
    } catch (error) {
      read.signal.throwIfAborted();
      throw error;
    } finally {
      read.signal.removeEventListener('abort', stop);
      if (!read.signal.aborted && !lost) await client.query('rollback').catch(() => {});
    }
  }

  return { describe, rowsSince, close: () => client.end() };
}

type Query = (statement: string) => Promise<pg.QueryArrayResult<(string | null)[]>>;

async function* fetchAll(query: Query, statement: string, { batch, signal }: ReadOptions) {
  await query(`declare penstock_rows cursor for ${statement}`);
  let count = Math.min(FIRST_FETCH, batch);
  while (true) {
    signal.throwIfAborted();
    const { rows } = await query(`fetch forward ${count} from penstock_rows`);
    if (rows.length > 0) yield rows;
    if (rows.length < count) break;
    const bytes = rows.flat().reduce((sum, value) => sum + (value?.length ?? 0), 1);
    count = Math.max(1, Math.min(batch, Math.floor((FETCH_BYTES * rows.length) / bytes)));
  }
  await query('close penstock_rows');
}

const asTexts: pg.CustomTypesConfig = { getTypeParser: () => (value: string) => value };

function createClient(definition: PostgresDefinition, credentials: { user: string; password: string }) {
  const { host, port, database, tls } = definition;
  return new pg.Client({
    host,
    port,
    database,
    ...credentials,
    ssl: tls === 'off' ? false : { rejectUnauthorized: tls === 'verified' },
    connectionTimeoutMillis: CONNECT_MS,
    keepAlive: true,
    application_name: 'penstock',
  });
}

/** Ends the statement at the server, which would notice a closed connection only when it has rows to send. */
async function cancel(
  definition: PostgresDefinition,
  credentials: { user: string; password: string },
  client: pg.Client,
): Promise<void> {
  const { processID } = client as unknown as { processID: number };
  const other = createClient(definition, credentials);
  other.on('error', () => {});
  const work = other.connect().then(() => other.query(`select pg_cancel_backend(${Number(processID)})`));
  await within(CANCEL_MS, work).catch(() => {});
  await other.end().catch(() => {});
}
