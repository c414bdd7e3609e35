import type { DuckDBConnection } from '@duckdb/node-api';
import type { KnownColumn } from '../columns.ts';
import type { SourceColumn, SourceRow } from '../source.ts';
import { EARLIEST, LATEST, TIME_PATTERN } from '../times.ts';
import { literal } from './duckdb.ts';
import type { InputFile } from './input-files.ts';

/** Files that are read alike, as a part of one statement. */
export interface Part {
  columns: SourceColumn[];
  /** What to select from: relation of DuckDB. */
  from: string;
  /** Expression of a timestamp in UTC, null for what is no time. */
  at: string;
  /** Expression of a text: what stands in UPDATED_AT. */
  shown: string;
  /** Expressions of texts. */
  values: Map<Exclude<KnownColumn, 'updated_at'>, string>;
}

/** How files of a format are read. */
export interface FormatReader {
  /** @throws {SourceError} `config` when columns are missing or cannot be told apart */
  parts(connection: DuckDBConnection, files: readonly InputFile[], serviceIdField: string): Promise<Part[]>;
  /** What could not be read, known when the statement over the parts has given its last row. */
  broken(
    connection: DuckDBConnection,
    files: readonly InputFile[],
    signal: AbortSignal,
  ): AsyncIterable<SourceRow[]>;
}

/** Expression of a timestamp from one of a text. */
export function timeOfText(text: string): string {
  const isTime = `regexp_matches(${text}, ${literal(TIME_PATTERN)}) and not starts_with(${text}, '0000')`;
  const withoutSpace = `replace(replace(${text}, ' +', '+'), ' -', '-')`;
  return `case when ${isTime} then try_cast(${withoutSpace} as timestamptz) at time zone 'UTC' end`;
}

/**
 * Of all parts: UPDATED_AT in its wire form or null; what stood there when it is no time; then `columns`.
 * @param since in the form of `SourceRow.updatedAt`
 */
export function rowsStatement(
  parts: readonly Part[],
  columns: readonly Exclude<KnownColumn, 'updated_at'>[],
  since: string | undefined,
): string {
  const rows = parts.map(({ from, at, shown, values }) => {
    const selected = columns.map((column, index) => `${values.get(column) ?? 'null::varchar'} as v${index}`);
    return `select ${[`${at} as moment`, `${shown} as shown`, ...selected].join(', ')} from ${from}`;
  });
  const isTime = `coalesce(moment between timestamp '${EARLIEST}' and timestamp '${LATEST}', false)`;
  const texts = [
    `case when ${isTime} then strftime(moment, '%Y-%m-%dT%H:%M:%S.%fZ') end`,
    ...['shown', ...columns.map((_, index) => `v${index}`)],
  ];
  const others = columns.map((_, index) => `, v${index}`).join('');
  return [
    `select ${texts.join(', ')} from (`,
    // What is not needed is not sorted either.
    `select moment, case when not ${isTime} then shown end as shown${others} from (${rows.join(' union all ')})`,
    since === undefined
      ? ')'
      : `where not ${isTime} or moment >= timestamp ${literal(since.replace('Z', ''))})`,
    'order by moment nulls first',
  ].join(' ');
}
