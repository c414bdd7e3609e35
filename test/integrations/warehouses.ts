import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { DuckDBInstance } from '@duckdb/node-api';
import pg from 'pg';
import { openSource } from '../../src/integrations/open-source.ts';
import type {
  BucketDefinition,
  Credentials,
  FileFormat,
  FolderDefinition,
  PostgresDefinition,
  Source,
  SourceDefinition,
  SourceRow,
} from '../../src/integrations/source.ts';
import { createReach } from '../../src/platform/reach.ts';
import { createBareDatabase, temporaryFolder } from '../setup/fixtures.ts';
import { leaveBehind } from '../setup/left-behind.ts';
import { startS3 } from './s3.ts';

export interface Stocked {
  definition: SourceDefinition;
  credentials?: Credentials;
}

/** A kind of source that can be filled with rows. */
export interface Warehouse {
  name: string;
  /** A value that may be in UPDATED_AT, but is not a time. */
  noTime: string;
  /** Values in the order of the columns; the payload is JSON text. */
  stock(columns: readonly string[], rows: readonly (string | null)[][]): Promise<Stocked>;
}

export const warehouses: Warehouse[] = [
  { name: 'Postgres', noTime: 'infinity', stock: (...all) => stockPostgres('timestamptz', ...all) },
  {
    name: 'Postgres with times as texts',
    noTime: '2026-02-30',
    stock: (...all) => stockPostgres('text', ...all),
  },
  { name: 'CSV', noTime: 'tomorrow', stock: (...all) => stockFolder('csv', ...all) },
  { name: 'NDJSON', noTime: '1767225600', stock: (...all) => stockFolder('ndjson', ...all) },
  { name: 'Parquet', noTime: 'infinity', stock: (...all) => stockFolder('parquet', ...all) },
  { name: 'S3', noTime: '2026-13-01', stock: stockBucket },
];

interface WarehouseDatabase {
  definition: Omit<PostgresDefinition, 'table'>;
  credentials: { user: string; password: string };
  url: string;
}

let database: Promise<WarehouseDatabase> | undefined;
let tables = 0;

/** Starts the database that `Postgres` fills, shared by all tests of a file. */
export function postgres(): Promise<WarehouseDatabase> {
  if (!database) {
    database = createWarehouseDatabase();
    leaveBehind(() => {
      database = undefined;
    });
  }
  return database;
}

async function createWarehouseDatabase(): Promise<WarehouseDatabase> {
  const { url } = await createBareDatabase();
  const { hostname, port, pathname, username, password } = new URL(url);
  return {
    url,
    definition: {
      type: 'postgres',
      host: hostname,
      port: Number(port),
      database: pathname.slice(1),
      tls: 'off',
    },
    credentials: { user: username, password: decodeURIComponent(password) },
  };
}

export async function runOnPostgres(statement: string, values: unknown[] = []): Promise<pg.QueryResult> {
  const client = new pg.Client({ connectionString: (await postgres()).url });
  await client.connect();
  return client.query(statement, values).finally(() => client.end());
}

async function stockPostgres(
  timeType: string,
  columns: readonly string[],
  rows: readonly (string | null)[][],
): Promise<Stocked> {
  const { definition, credentials } = await postgres();
  tables += 1;
  const table = `stock_${tables}`;
  const typeOf = (name: string) => (/^updated_at$/i.test(name) ? timeType : 'text');
  const names = columns.map((name) => pg.escapeIdentifier(name));
  const defined = columns.map((name, index) => `${names[index]} ${typeOf(name)}`);
  await runOnPostgres(`create table ${table} (${defined.join(', ')})`);
  await runOnPostgres(
    `insert into ${table} select ${columns.map((name, index) => `(r ->> ${index})::${typeOf(name)}`).join(', ')} from json_array_elements($1) r`,
    [JSON.stringify(rows)],
  );
  return { definition: { ...definition, table }, credentials };
}

async function stockFolder(
  format: FileFormat,
  columns: readonly string[],
  rows: readonly (string | null)[][],
): Promise<Stocked> {
  const folder = temporaryFolder('penstock-stock-');
  // Two files, so that the order across files is tested.
  const middle = Math.ceil(rows.length / 2);
  await writeStock(path.join(folder, `a.${format}`), format, columns, rows.slice(0, middle));
  await writeStock(path.join(folder, `b.${format}`), format, columns, rows.slice(middle));
  writeFileSync(path.join(folder, 'readme.txt'), 'nothing to sync');
  return { definition: { type: 'folder', path: folder, format } };
}

async function stockBucket(columns: readonly string[], rows: readonly (string | null)[][]): Promise<Stocked> {
  const s3 = await startS3();
  const { definition } = await stockFolder('csv', columns, rows);
  const bucket = await s3.fill((definition as FolderDefinition).path, 'exports/users/');
  const stocked: BucketDefinition = {
    type: 's3',
    bucket,
    prefix: 'exports/users/',
    region: 'eu-central-1',
    endpoint: s3.endpoint,
    format: 'csv',
  };
  return { definition: stocked, credentials: s3.credentials };
}

export async function writeStock(
  file: string,
  format: FileFormat,
  columns: readonly string[],
  rows: readonly (string | null)[][],
): Promise<void> {
  mkdirSync(path.dirname(file), { recursive: true });
  if (format === 'csv') {
    const cell = (value: string | null) => (value === null ? '' : `"${value.replaceAll('"', '""')}"`);
    const lines = [columns, ...rows].map((row) => row.map(cell).join(','));
    writeFileSync(file, lines.map((line) => `${line}\r\n`).join(''));
  } else if (format === 'ndjson') {
    const member = (name: string, value: string | null) => `${JSON.stringify(name)}:${JSON.stringify(value)}`;
    const lines = rows.map(
      (row) => `{${row.map((value, index) => member(columns[index]!, value)).join(',')}}`,
    );
    writeFileSync(file, lines.map((line) => `${line}\n`).join(''));
  } else {
    await writeParquet(file, columns, rows);
  }
}

async function writeParquet(
  file: string,
  columns: readonly string[],
  rows: readonly (string | null)[][],
): Promise<void> {
  const cast = (name: string) => (/^updated_at$/i.test(name) ? 'timestamptz' : 'varchar');
  // DuckDB cannot write two names that differ only in case, so it writes another name, which is replaced in
  // the file.
  const written = columns.map((name) => (name === 'EMAIL' ? 'EM~IL' : name));
  const selected = written.map(
    (name, index) => `(r ->> ${index})::${cast(name)} as "${name.replaceAll('"', '""')}"`,
  );
  await runOnDuckDb(
    `copy (select ${selected.join(', ')} from (select unnest(${textList(rows)}::json[]) as r)) to '${file}' (format parquet)`,
  );
  const bytes = readFileSync(file, 'latin1');
  writeFileSync(file, bytes.replaceAll('EM~IL', 'EMAIL'), 'latin1');
}

function textList(rows: readonly unknown[]): string {
  return `[${rows.map((row) => `'${JSON.stringify(row).replaceAll("'", "''")}'`).join(', ')}]`;
}

/** Runs a statement without restrictions, like a warehouse that writes files. */
export async function runOnDuckDb(statement: string): Promise<void> {
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  await connection.run("set TimeZone = 'UTC'");
  await connection.run(statement);
  connection.closeSync();
  instance.closeSync();
}

export function open(
  stocked: Stocked,
  serviceIdField = 'service_id',
  scratchBytes = 10_737_418_240,
): Promise<Source> {
  const options = { serviceIdField, scratchBytes, reach: createReach({ refused: 'metadata' }) };
  return openSource(stocked.definition, stocked.credentials, options);
}

/** Reads all rows since that time, and closes the source. */
export async function readAll(stocked: Stocked, since?: string, batch = 1000): Promise<SourceRow[]> {
  const source = await open(stocked);
  const rows: SourceRow[] = [];
  try {
    const { signal } = new AbortController();
    for await (const some of source.rowsSince(since, { batch, signal })) rows.push(...some);
  } finally {
    await source.close();
  }
  return rows;
}
