import type { DuckDBConnection } from '@duckdb/node-api';
import type { KnownColumn } from '../columns.ts';
import type { SourceColumn, SourceRow } from '../source.ts';
import { TIME_PATTERN } from '../times.ts';
import { literal } from './duckdb.ts';
import type { InputFile } from './input-files.ts';

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
  /** What is read in place of the files, if not they themselves. Stands in the scratch folder, too. */
  prepare?(files: readonly InputFile[], signal: AbortSignal): Promise<InputFile[]>;
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
