import type { DuckDBConnection } from '@duckdb/node-api';
import {
  brokenRow,
  EARLIEST,
  type KnownColumn,
  LATEST,
  MAX_UNREADABLE,
  maxCharacters,
  TIME_PATTERN,
} from '../columns.ts';
import { type DuckDbModule, importDuckDb, literal } from '../duckdb.ts';
import { type SourceColumn, SourceError, type SourceRow } from '../source.ts';
import type { InputFile } from './input.ts';
import type { Scratch } from './scratch.ts';

/**
 * @throws {SourceError} `failed` if DuckDB is not installed, so that a retry succeeds after its installation
 */
export const loadDuckDb = (): Promise<DuckDbModule> =>
  importDuckDb((message, options) => new SourceError('failed', message, options));

/** Files with the same columns, as a part of one statement. */
export interface Part {
  columns: SourceColumn[];
  /** Relation of DuckDB to select from. */
  from: string;
  /**
   * Relation with the same rows that also keeps unreadable lines for `FormatReader.broken`. It is read once.
   */
  fromKeeping: string;
  /** Expression of the time as a timestamp in UTC; null for an invalid time. */
  at: string;
  /** Expression of the original text of UPDATED_AT. */
  shown: string;
  /** Expressions of the other columns as texts. */
  values: Map<Exclude<KnownColumn, 'updated_at'>, string>;
}

/** Reads files of one format. */
export interface FormatReader {
  /**
   * Returns the files to read instead of the given files, which may be removed then. They are in the scratch
   * folder as well.
   */
  prepare?(files: readonly InputFile[], scratch: Scratch, signal: AbortSignal): Promise<InputFile[]>;
  /** @throws {SourceError} `config` if columns are missing or ambiguous */
  parts(connection: DuckDBConnection, files: readonly InputFile[], serviceIdField: string): Promise<Part[]>;
  /** Returns the unreadable lines. Call it after a statement over `fromKeeping` has ended. */
  broken(connection: DuckDBConnection, files: readonly InputFile[]): AsyncIterable<SourceRow[]>;
}

/** Returns an expression of a timestamp from an expression of a text. */
export function timeOfText(text: string): string {
  const isTime = `regexp_matches(${text}, ${literal(TIME_PATTERN)}) and not starts_with(${text}, '0000')`;
  const withoutSpace = `replace(replace(${text}, ' +', '+'), ' -', '-')`;
  return `case when ${isTime} then try_cast(${withoutSpace} as timestamptz) at time zone 'UTC' end`;
}

/**
 * Errors of DuckDB for a file whose content does not match its extension. All other errors may be temporary.
 */
const CONFIG =
  /^(Invalid Input|Invalid|Conversion|Binder|Parser|Catalog|Not implemented|Serialization) Error/i;

/** @returns an error for the owner, with the owner's names of the files */
export function toSourceError(error: unknown, files: readonly InputFile[]): SourceError {
  if (error instanceof SourceError) return error;
  // Later paragraphs of a DuckDB message contain hints for the author of the statement, and the statement.
  const message = error instanceof Error ? error.message.split('\n\n')[0]! : String(error);
  if (message.includes('state machine reached an invalid state')) {
    return new SourceError(
      'config',
      `${nameAll(files)}: all lines of a CSV file must have the same line ending`,
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

/** Replaces paths in a text by the names that the owner knows. */
export function withNames(text: string, files: readonly InputFile[]): string {
  return files.reduce((replaced, { name, path }) => replaced.replaceAll(path, () => name), text);
}

/**
 * Yields the lines that could not be read as rows, each with its file, record number, violated rule and text.
 * They are known after all lines were read.
 */
export async function* readRejects(
  connection: DuckDBConnection,
  files: readonly InputFile[],
): AsyncGenerator<SourceRow[]> {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const result = await connection.stream(`
    select scans.file_path, errors.line::varchar,
      left(first(errors.error_message order by errors.error_message), ${MAX_UNREADABLE}),
      left(first(coalesce(errors.csv_line, '')), ${MAX_UNREADABLE})
    from reject_errors errors join reject_scans scans using (scan_id, file_id)
    group by scan_id, file_id, scans.file_path, errors.line order by scans.file_path, errors.line`);
  for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
    yield (chunk.getRows() as [string, string, string, string][]).map(([path, line, rule, text]) => {
      const number = Number(line) + (byPath.get(path)?.recordsBefore ?? 0);
      return brokenRow(withNames(`${path} line ${number}: ${rule}`, files), text);
    });
  }
}

export type ValueColumn = Exclude<KnownColumn, 'updated_at'>;

/**
 * Maximum bytes of a window. DuckDB cannot sort wide rows that exceed its memory: it fails or, worse, returns
 * no rows. So rows are read in windows of time, each small enough to be sorted and each with a statement of
 * its own.
 */
const WINDOW_BYTES = 33_554_432;
/** Number of quantiles of time, which is also the maximum number of windows. */
const QUANTILES = 1000;

interface Window {
  /** Condition on `moment`. */
  condition: string;
  /** Whether the rows must be sorted. Rows with the same time or without a time need no sorting. */
  ordered: boolean;
}

interface Survey {
  /** Windows in the order of time. The window of rows without a valid time is first. */
  windows: Window[];
  /** Number of rows in all windows. */
  rows: number;
}

const IS_TIME = `coalesce(moment between timestamp '${EARLIEST}' and timestamp '${LATEST}', false)`;

/**
 * Counts the rows since a time and divides them into windows.
 * @param since time in the form of `SourceRow.updatedAt`
 */
export async function surveyRows(
  connection: DuckDBConnection,
  { parts, columns }: { parts: readonly Part[]; columns: readonly ValueColumn[] },
  since: string | undefined,
): Promise<Survey> {
  const from =
    since === undefined ? IS_TIME : `${IS_TIME} and moment >= timestamp ${literal(since.replace('Z', ''))}`;
  const bytes = ['0', ...columns.map((_, index) => `coalesce(strlen(v${index}), 0)`)].join(' + ');
  const quantiles = Array.from({ length: QUANTILES - 1 }, (_, index) => (index + 1) / QUANTILES);
  const reader = await connection.runAndReadAll(
    `select count(*) filter (${from}), count(*) filter (not ${IS_TIME}), sum(${bytes}) filter (${from}),
       approx_quantile(epoch_us(moment), [${quantiles.join(', ')}]) filter (${from})
     from (${rowsOf(parts, columns, 'fromKeeping')})`,
  );
  const [readable, unreadable, size, moments] = reader.getRowsJson()[0] as [
    string,
    string,
    string,
    string[] | null,
  ];
  const windows: Window[] = Number(unreadable) > 0 ? [{ condition: `not ${IS_TIME}`, ordered: false }] : [];
  if (Number(readable) > 0) {
    const count = Math.min(QUANTILES, Math.ceil(Number(size) / WINDOW_BYTES));
    const bounds = Array.from({ length: Math.max(0, count - 1) }, (_, index) =>
      BigInt(moments![Math.floor(((index + 1) * QUANTILES) / count) - 1]!),
    );
    for (const { condition, ordered } of windowsBetween(bounds)) {
      windows.push({ condition: `${from} and ${condition}`, ordered });
    }
  }
  return { windows, rows: Number(readable) + Number(unreadable) };
}

/**
 * Returns the windows between bounds. A repeated bound is a time with more rows than a window should have,
 * and gets its own window.
 */
function windowsBetween(bounds: readonly bigint[]): Window[] {
  const moment = (bound: bigint) => `make_timestamp(${bound})`;
  const distinct = [...new Set(bounds)].sort((one, other) => (one < other ? -1 : 1));
  let above = 'true';
  const windows: Window[] = [];
  for (const bound of distinct) {
    windows.push({ condition: `${above} and moment < ${moment(bound)}`, ordered: true });
    above = `moment >= ${moment(bound)}`;
    if (bounds.filter((other) => other === bound).length === 1) continue;
    windows.push({ condition: `moment = ${moment(bound)}`, ordered: false });
    above = `moment > ${moment(bound)}`;
  }
  windows.push({ condition: above, ordered: true });
  return windows;
}

/**
 * Returns a statement for the rows of a window: UPDATED_AT in its canonical form or null, its original text
 * if it is not a valid time, and then `columns`.
 */
export function rowsStatement(
  parts: readonly Part[],
  columns: readonly ValueColumn[],
  { condition, ordered }: Window,
): string {
  const values = columns.map((_, index) => `, v${index}`).join('');
  return [
    `select case when ${IS_TIME} then strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ') end, shown${values}`,
    // Omit values that are not needed, so that they need not be sorted.
    `from (select moment, case when not ${IS_TIME} then shown end as shown${values}`,
    `from (${rowsOf(parts, columns, 'from')}) where ${condition})`,
    ordered ? 'order by moment' : '',
  ].join(' ');
}

function rowsOf(
  parts: readonly Part[],
  columns: readonly ValueColumn[],
  relation: 'from' | 'fromKeeping',
): string {
  const rows = parts.map((part) => {
    const values = columns.map((column, index) => {
      const value = part.values.get(column);
      return `, ${value === undefined ? 'null::varchar' : `left(${value}, ${maxCharacters(column)})`} as v${index}`;
    });
    return `select ${part.at} as moment, left(${part.shown}, ${MAX_UNREADABLE}) as shown${values.join('')} from ${part[relation]}`;
  });
  return rows.join(' union all ');
}
