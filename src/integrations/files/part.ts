import path from 'node:path';
import type { DuckDBConnection } from '@duckdb/node-api';
import { brokenRow, type KnownColumn, MOST_UNREADABLE } from '../columns.ts';
import { type DuckDbModule, importDuckDb } from '../duckdb.ts';
import { TIME_PATTERN } from '../schedule.ts';
import { type SourceColumn, SourceError, type SourceRow } from '../source.ts';
import type { InputFile } from './input.ts';
import type { Scratch } from './scratch.ts';

/**
 * What DuckDB keeps in memory at most. It takes far less for rows of a few hundred bytes; but it handles 2048 rows at a
 * time, and so 200 MB for rows of 100 KB.
 */
const MEMORY = '1GiB';
/** Each has rows of its own in memory, and the lanes take what is read far more slowly than one reads. */
const THREADS = 1;

/** @throws {SourceError} when it is not there; once it is, another try will do */
export const loadDuckDb = (): Promise<DuckDbModule> =>
  importDuckDb((message, options) => new SourceError('failed', message, options));

export interface DuckDb {
  connect(): Promise<DuckDBConnection>;
  close(): void;
}

/**
 * A DuckDB without a database, that reads nothing but the scratch folder: no other file, no network, no extension.
 * What is needed, Parquet and JSON, is built in.
 * @param keepsOrder rows come in the order of their file
 */
export async function openDuckDb(
  scratch: Pick<Scratch, 'path' | 'inputs' | 'maxBytes'>,
  { keepsOrder = false } = {},
): Promise<DuckDb> {
  const { DuckDBInstance } = await loadDuckDb();
  const instance = await DuckDBInstance.create(':memory:');
  const connection = await instance.connect();
  // The order counts: nothing can be set once external access is off and the configuration locked.
  for (const setting of [
    `threads = ${THREADS}`,
    `memory_limit = '${MEMORY}'`,
    `temp_directory = ${literal(path.join(scratch.path, 'spill'))}`,
    `max_temp_directory_size = '${scratch.maxBytes}B'`,
    `extension_directory = ${literal(path.join(scratch.path, 'extensions'))}`,
    'autoinstall_known_extensions = false',
    'autoload_known_extensions = false',
    'allow_community_extensions = false',
    'allow_persistent_secrets = false',
    `preserve_insertion_order = ${keepsOrder}`,
    "TimeZone = 'UTC'",
    `allowed_directories = [${literal(scratch.inputs)}]`,
    'enable_external_access = false',
    'lock_configuration = true',
  ]) {
    await connection.run(`set ${setting}`);
  }
  connection.closeSync();
  return { connect: () => instance.connect(), close: () => instance.closeSync() };
}

export function literal(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

/** Files that are read alike, as a part of one statement. */
export interface Part {
  columns: SourceColumn[];
  /** What to select from: relation of DuckDB. */
  from: string;
  /** The same, that also keeps what cannot be read for `FormatReader.broken`; read once. */
  fromKeeping: string;
  /** Expression of a timestamp in UTC, null for what is no time. */
  at: string;
  /** Expression of a text: what stands in UPDATED_AT. */
  shown: string;
  /** Expressions of texts. */
  values: Map<Exclude<KnownColumn, 'updated_at'>, string>;
}

/** How files of a format are read. */
export interface FormatReader {
  /** What is read in place of the files, if not they themselves, which may be gone then. Stands in the scratch folder, too. */
  prepare?(files: readonly InputFile[], scratch: Scratch, signal: AbortSignal): Promise<InputFile[]>;
  /** @throws {SourceError} `config` when columns are missing or cannot be told apart */
  parts(connection: DuckDBConnection, files: readonly InputFile[], serviceIdField: string): Promise<Part[]>;
  /** What could not be read, known when a statement over `fromKeeping` has ended. */
  broken(connection: DuckDBConnection, files: readonly InputFile[]): AsyncIterable<SourceRow[]>;
}

/** Expression of a timestamp from one of a text. */
export function timeOfText(text: string): string {
  const isTime = `regexp_matches(${text}, ${literal(TIME_PATTERN)}) and not starts_with(${text}, '0000')`;
  const withoutSpace = `replace(replace(${text}, ' +', '+'), ' -', '-')`;
  return `case when ${isTime} then try_cast(${withoutSpace} as timestamptz) at time zone 'UTC' end`;
}

/** DuckDB's words for a file that is not what its ending says; everything else may pass. */
const CONFIG =
  /^(Invalid Input|Invalid|Conversion|Binder|Parser|Catalog|Not implemented|Serialization) Error/i;

/** @returns what the owner reads, with the owner's names of the files */
export function toSourceError(error: unknown, files: readonly InputFile[]): SourceError {
  if (error instanceof SourceError) return error;
  // Behind the first paragraph, DuckDB advises whoever writes the statement, and shows it.
  const message = error instanceof Error ? error.message.split('\n\n')[0]! : String(error);
  if (message.includes('state machine reached an invalid state')) {
    return new SourceError(
      'config',
      `${nameAll(files)}: the lines of a CSV file must all end in the same way`,
      {
        cause: error,
      },
    );
  }
  const reason = CONFIG.test(message) ? 'config' : 'failed';
  return new SourceError(reason, `${nameAll(files)}: ${withNames(message, files)}`, { cause: error });
}

export function nameAll(files: readonly InputFile[]): string {
  const [first, ...others] = new Set(files.map(({ name }) => name));
  return others.length === 0 ? first! : `${first} and ${others.length} more`;
}

/** A text in which files have the names that the owner knows. */
export function withNames(text: string, files: readonly InputFile[]): string {
  return files.reduce((known, { name, path }) => known.replaceAll(path, () => name), text);
}

/**
 * The lines that could not be read, as rows; each with its file, its number among the records of the file, the rule that
 * it breaks and what stood there. They are known when everything has been read.
 */
export async function* readRejects(
  connection: DuckDBConnection,
  files: readonly InputFile[],
): AsyncGenerator<SourceRow[]> {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const result = await connection.stream(`
    select scans.file_path, errors.line::varchar,
      left(first(errors.error_message order by errors.error_message), ${MOST_UNREADABLE}),
      left(first(coalesce(errors.csv_line, '')), ${MOST_UNREADABLE})
    from reject_errors errors join reject_scans scans using (scan_id, file_id)
    group by scan_id, file_id, scans.file_path, errors.line order by scans.file_path, errors.line`);
  for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
    yield (chunk.getRows() as [string, string, string, string][]).map(([path, line, rule, text]) => {
      const number = Number(line) + (byPath.get(path)?.recordsBefore ?? 0);
      return brokenRow(withNames(`${path} line ${number}: ${rule}`, files), text);
    });
  }
}
