import type { DuckDBConnection } from '@duckdb/node-api';
import { findColumns, type KnownColumn, requireUpdatedAt } from '../columns.ts';
import { type SourceColumn, SourceError } from '../source.ts';
import type { InputFile } from './input.ts';
import { type FormatReader, literal, type Part, timeOfText } from './part.ts';

/** Parquet files: one part, columns by name; a file that lacks one has null there. */
export const parquet: FormatReader = {
  parts,
  async *broken() {},
};

async function parts(
  connection: DuckDBConnection,
  files: readonly InputFile[],
  serviceIdField: string,
): Promise<Part[]> {
  const list = `[${files.map(({ path }) => literal(path)).join(', ')}]`;
  for (const file of files) {
    await refuseBrotli(connection, file);
    const found = findColumns(await topLevelNames(connection, file), serviceIdField, file.name);
    requireUpdatedAt(found, file.name);
  }
  // Old writers do not say that their bytes are texts.
  const from = `read_parquet(${list}, union_by_name = true, binary_as_string = true)`;
  const described = (await connection.runAndReadAll(`describe select * from ${from}`)).getRowsJson();
  const columns = described.map(([name, type]) => ({ name: String(name), type: String(type) }));
  const where = files[0]!.name;
  const found = findColumns(
    columns.map(({ name }) => name),
    serviceIdField,
    where,
  );
  const columnOf = (known: KnownColumn) => columns.find(({ name }) => name === found.get(known))!;
  const known = [...found.keys()].filter((column) => column !== 'updated_at');
  const updatedAt = columnOf('updated_at');
  return [
    {
      columns,
      from,
      fromKeeping: from,
      at: timeOf(updatedAt, where),
      shown: `${identifier(updatedAt.name)}::varchar`,
      values: new Map(known.map((column) => [column, asText(columnOf(column))])),
    },
  ];
}

/**
 * The Brotli decoder that DuckDB brings is of a release that writes where it must not (CVE-2026-111497), and whoever
 * makes the file chooses its codec. The footer says which: it is not packed.
 */
export async function refuseBrotli(connection: DuckDBConnection, file: InputFile): Promise<void> {
  const packed = await connection.runAndReadAll(
    `select 1 from parquet_metadata(${literal(file.path)}) where compression = 'BROTLI' limit 1`,
  );
  if (packed.currentRowCount === 0) return;
  throw new SourceError(
    'config',
    `${file.name}: it is compressed with Brotli, which is not read; write it with Zstandard, Snappy or gzip`,
  );
}

/** As the file has them: DuckDB itself gives a name that differs from another only in case a number. */
async function topLevelNames(connection: DuckDBConnection, file: InputFile): Promise<string[]> {
  const reader = await connection.runAndReadAll(
    `select name, coalesce(num_children, 0) from parquet_schema(${literal(file.path)})`,
  );
  const [, ...elements] = reader
    .getRowsJson()
    .map(([name, children]) => [String(name), Number(children)] as const);
  const names: string[] = [];
  // Depth first: what follows an element with children is the children.
  let nested = 0;
  for (const [name, children] of elements) {
    if (nested === 0) names.push(name);
    else nested -= 1;
    nested += children;
  }
  return names;
}

function timeOf({ name, type }: SourceColumn, where: string): string {
  const column = identifier(name);
  if (type === 'TIMESTAMP WITH TIME ZONE') return `${column} at time zone 'UTC'`;
  // Of any unit; without a zone it is UTC; a date is its first moment.
  if (type.startsWith('TIMESTAMP') || type === 'DATE') return `${column}::timestamp`;
  if (type === 'VARCHAR') return timeOfText(column);
  throw new SourceError('config', `${where}: ${name} is of type ${type}, which is no time`);
}

function asText({ name, type }: SourceColumn): string {
  const column = identifier(name);
  return /^(STRUCT|MAP|UNION)|\]$/.test(type) ? `to_json(${column})::varchar` : `${column}::varchar`;
}

function identifier(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}
