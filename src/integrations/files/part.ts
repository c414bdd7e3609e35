import type { DuckDBConnection } from '@duckdb/node-api';
import {
  brokenRow,
  EARLIEST,
  type KnownColumn,
  LATEST,
  MOST_UNREADABLE,
  mostCharacters,
  TIME_PATTERN,
} from '../columns.ts';
import { type DuckDbModule, importDuckDb, literal } from '../duckdb.ts';
import { type SourceColumn, SourceError, type SourceRow } from '../source.ts';
import type { InputFile } from './input.ts';
import type { Scratch } from './scratch.ts';

/** @throws {SourceError} when it is not there; once it is, another try will do */
export const loadDuckDb = (): Promise<DuckDbModule> =>
  importDuckDb((message, options) => new SourceError('failed', message, options));

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

export type ValueColumn = Exclude<KnownColumn, 'updated_at'>;

/**
 * DuckDB cannot sort wide rows that do not fit into its memory: it ends with an error, or worse, with no rows. So rows are
 * read window by window of time, each with so many bytes as can be sorted, and each in a reading of its own.
 */
const WINDOW_BYTES = 33_554_432;
/** Quantiles of the time that windows are made of, and so the most of them. */
const QUANTILES = 1000;

interface Window {
  /** Condition on `moment`. */
  condition: string;
  /** Rows of one moment need not be sorted, however many they are; those without one cannot be. */
  ordered: boolean;
}

interface Survey {
  /** In the order of time; what is no time comes first. */
  windows: Window[];
  /** In all windows. */
  rows: number;
}

const IS_TIME = `coalesce(moment between timestamp '${EARLIEST}' and timestamp '${LATEST}', false)`;

/**
 * Counts the rows since then and parts them into windows.
 * @param since in the form of `SourceRow.updatedAt`
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

/** A bound that comes twice is a moment with more rows than a window should have: it is a window of its own. */
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

/** Of each row of a window: UPDATED_AT in its wire form or null; what stood there when it is no time; then `columns`. */
export function rowsStatement(
  parts: readonly Part[],
  columns: readonly ValueColumn[],
  { condition, ordered }: Window,
): string {
  const values = columns.map((_, index) => `, v${index}`).join('');
  return [
    `select case when ${IS_TIME} then strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ') end, shown${values}`,
    // What is not needed is not sorted either.
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
      return `, ${value === undefined ? 'null::varchar' : `left(${value}, ${mostCharacters(column)})`} as v${index}`;
    });
    return `select ${part.at} as moment, left(${part.shown}, ${MOST_UNREADABLE}) as shown${values.join('')} from ${part[relation]}`;
  });
  return rows.join(' union all ');
}
