import type { DuckDBConnection } from '@duckdb/node-api';
import { brokenRow, findColumns, type KnownColumn, knownNames, requireUpdatedAt } from '../columns.ts';
import { MAX_ROW_BYTES } from '../csv-scanner.ts';
import { identifier, isInBrotli, literal } from '../duckdb.ts';
import { type FileFormat, type SourceColumn, SourceError, type SourceRow } from '../source.ts';
import { type CsvHeader, cutCsv, readHeader } from './csv.ts';
import type { InputFile } from './input.ts';
import { type FormatReader, nameAll, type Part, readRejects, timeOfText } from './part.ts';

/** Keeps unreadable lines for `readRejects`. */
const KEEP_REJECTS = 'ignore_errors = true, store_rejects = true, rejects_limit = 0';
const SKIP_REJECTS = 'ignore_errors = true';

/**
 * Reads CSV files in the form of RFC 4180 with a header. All values are texts, so that an id keeps its
 * leading zeros, and an empty value is null. Files with the same header form one part.
 */
const csv: FormatReader = {
  async prepare(files, scratch, signal) {
    const pieces = [];
    for (const file of files) pieces.push(...(await cutCsv(file, scratch, { signal })));
    return pieces;
  },
  parts: partsOfCsv,
  async *broken(connection, pieces) {
    yield* readRejects(connection, pieces);
    yield pieces.flatMap(openQuote);
  },
};

async function partsOfCsv(
  _connection: unknown,
  files: readonly InputFile[],
  serviceIdField: string,
): Promise<Part[]> {
  const groups = new Map<string, { header: CsvHeader; files: InputFile[] }>();
  for (const file of files) {
    const header = await readHeader(file);
    if (!header) continue;
    const key = JSON.stringify(header);
    const group = groups.get(key) ?? { header, files: [] };
    groups.set(key, { header, files: [...group.files, file] });
  }
  return [...groups.values()].map(({ header, files }) => {
    const nameByColumn = findColumns(header.names, serviceIdField, files[0]!.name);
    requireUpdatedAt(nameByColumn, files[0]!.name);
    const expression = (column: KnownColumn) => `c${header.names.indexOf(nameByColumn.get(column)!)}`;
    const valueColumns = [...nameByColumn.keys()].filter((column) => column !== 'updated_at');
    return {
      columns: header.names.map((name) => ({ name, type: 'text' })),
      from: readCsv(files, header, SKIP_REJECTS),
      fromKeeping: readCsv(files, header, KEEP_REJECTS),
      at: timeOfText(expression('updated_at')),
      shown: expression('updated_at'),
      values: new Map(valueColumns.map((column) => [column, expression(column)])),
    };
  });
}

function readCsv(
  files: readonly InputFile[],
  { linesBefore, delimiter, names }: CsvHeader,
  rejects: string,
): string {
  const columns = names.map((_, index) => `c${index}: 'VARCHAR'`).join(', ');
  return `read_csv([${files.map(({ path }) => literal(path)).join(', ')}], columns = {${columns}}, ${[
    'auto_detect = false',
    'header = true',
    ...(linesBefore > 0 ? [`skip = ${linesBefore}`] : []),
    `delim = ${literal(delimiter)}`,
    `quote = '"'`,
    `escape = '"'`,
    `comment = ''`,
    `max_line_size = ${MAX_ROW_BYTES}`,
    `buffer_size = ${2 * MAX_ROW_BYTES}`,
    // A value may contain line breaks, so the ends of lines are only known when reading from the first byte.
    'parallel = false',
    rejects,
  ].join(', ')})`;
}

function openQuote({ name, openQuote }: InputFile): SourceRow[] {
  if (openQuote === undefined) return [];
  const text = `${name}: the quote at byte ${openQuote + 1} is not closed, so the file cannot be read from its line on`;
  return [brokenRow(text, '')];
}

/**
 * Reads NDJSON files, which have one object per line. Lines are read as texts and parsed one by one, so that
 * invalid JSON affects one row only, and numbers and payloads keep their digits. An additional pass collects
 * the members of all lines, because each line may spell them in a different case.
 */
const ndjson: FormatReader = { parts: partsOfNdjson, broken: readRejects };

async function partsOfNdjson(
  connection: DuckDBConnection,
  files: readonly InputFile[],
  serviceIdField: string,
): Promise<Part[]> {
  const wanted = knownNames(serviceIdField).map(literal).join(', ');
  const reader = await connection.runAndReadAll(
    `select distinct list_sort(list_filter(json_keys(object), lambda name: lower(name) in (${wanted})))
     from (${objects(readLines(files, SKIP_REJECTS), '')}) where object is not null`,
  );
  const spellings = reader.getRowsJson().map(([names]) => names as string[]);
  const namesByColumn = new Map<KnownColumn, Set<string>>();
  for (const names of spellings) {
    for (const [column, name] of findColumns(names, serviceIdField, nameAll(files))) {
      namesByColumn.set(column, (namesByColumn.get(column) ?? new Set()).add(name));
    }
  }
  if (spellings.length > 0) requireUpdatedAt(namesByColumn, nameAll(files));
  const expression = (column: KnownColumn) =>
    `coalesce(${[...(namesByColumn.get(column) ?? []), 'x'].map((name) => `object ->> ${literal(name)}`).join(', ')})`;
  const valueColumns = [...namesByColumn.keys()].filter((column) => column !== 'updated_at');
  return [
    {
      columns: [...namesByColumn.values()].map(([name]) => ({ name: name!, type: 'json' })),
      from: `(${objects(readLines(files, SKIP_REJECTS), ', line, filename')})`,
      fromKeeping: `(${objects(readLines(files, KEEP_REJECTS), ', line, filename')})`,
      at: timeOfText(expression('updated_at')),
      shown: `case when object is null then filename || ': no JSON object: ' || line else ${expression('updated_at')} end`,
      values: new Map(valueColumns.map((column) => [column, expression(column)])),
    },
  ];
}

/** Returns a query for each line as an object, or null if it is not an object. Blank lines are omitted. */
function objects(lines: string, others: string): string {
  return `select case when json_valid(line) then case when json_type(line) = 'OBJECT' then line::json end end as object
    ${others} from ${lines} where trim(line, e' \\t\\r') <> ''`;
}

function readLines(files: readonly InputFile[], rejects: string): string {
  return `read_csv([${files.map(({ path }) => literal(path)).join(', ')}], columns = {line: 'VARCHAR'}, ${[
    'auto_detect = false',
    'header = false',
    // A delimiter that never occurs, because JSON has no control characters.
    "delim = e'\\x01'",
    "quote = ''",
    "escape = ''",
    "comment = ''",
    'filename = true',
    `max_line_size = ${MAX_ROW_BYTES}`,
    `buffer_size = ${2 * MAX_ROW_BYTES}`,
    // A file may mix different line endings.
    'strict_mode = false',
    rejects,
  ].join(', ')})`;
}

/** Reads Parquet files as one part. Columns are matched by name; a column that a file lacks is null there. */
const parquet: FormatReader = {
  parts: partsOfParquet,
  async *broken() {},
};

async function partsOfParquet(
  connection: DuckDBConnection,
  files: readonly InputFile[],
  serviceIdField: string,
): Promise<Part[]> {
  const list = `[${files.map(({ path }) => literal(path)).join(', ')}]`;
  for (const file of files) {
    await refuseBrotli(connection, file);
    const fileColumns = findColumns(await topLevelNames(connection, file), serviceIdField, file.name);
    requireUpdatedAt(fileColumns, file.name);
  }
  // Old writers do not mark binary columns as text.
  const from = `read_parquet(${list}, union_by_name = true, binary_as_string = true)`;
  const described = (await connection.runAndReadAll(`describe select * from ${from}`)).getRowsJson();
  const columns = described.map(([name, type]) => ({ name: String(name), type: String(type) }));
  const where = files[0]!.name;
  const nameByColumn = findColumns(
    columns.map(({ name }) => name),
    serviceIdField,
    where,
  );
  const columnOf = (column: KnownColumn) => columns.find(({ name }) => name === nameByColumn.get(column))!;
  const valueColumns = [...nameByColumn.keys()].filter((column) => column !== 'updated_at');
  const updatedAt = columnOf('updated_at');
  return [
    {
      columns,
      from,
      fromKeeping: from,
      at: timeOf(updatedAt, where),
      shown: `${identifier(updatedAt.name)}::varchar`,
      values: new Map(valueColumns.map((column) => [column, asText(columnOf(column))])),
    },
  ];
}

/** @throws {SourceError} `config` if the file uses Brotli */
export async function refuseBrotli(connection: DuckDBConnection, file: InputFile): Promise<void> {
  if (await isInBrotli(connection, file.path))
    throw new SourceError(
      'config',
      `${file.name}: it is compressed with Brotli, which is not supported; write it with Zstandard, Snappy or gzip`,
    );
}

/**
 * Returns the column names as they are in the file. DuckDB itself appends a number to names that differ only
 * in case.
 */
async function topLevelNames(connection: DuckDBConnection, file: InputFile): Promise<string[]> {
  const reader = await connection.runAndReadAll(
    `select name, coalesce(num_children, 0) from parquet_schema(${literal(file.path)})`,
  );
  const [, ...elements] = reader
    .getRowsJson()
    .map(([name, children]) => [String(name), Number(children)] as const);
  const names: string[] = [];
  // The elements are in depth-first order: the children of an element follow it.
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
  // A timestamp of any unit; without a time zone it is in UTC. A date means its first moment.
  if (type.startsWith('TIMESTAMP') || type === 'DATE') return `${column}::timestamp`;
  if (type === 'VARCHAR') return timeOfText(column);
  throw new SourceError('config', `${where}: ${name} is of type ${type}, which is not a time type`);
}

function asText({ name, type }: SourceColumn): string {
  const column = identifier(name);
  return /^(STRUCT|MAP|UNION)|\]$/.test(type) ? `to_json(${column})::varchar` : `${column}::varchar`;
}

export const readers: Record<FileFormat, FormatReader> = { csv, ndjson, parquet };
