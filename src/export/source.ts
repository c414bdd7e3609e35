import type { ParquetColumn } from '../object-store/parquet.ts';
import type { Json } from '../profile/json.ts';
import type { Connection } from '../store/database.ts';
import type { Wanted } from './progress.ts';

/** One line of a file, as an object of the API. */
export type ExportedRow = Record<string, Json>;

/** Rows that were read together. */
export interface Page {
  rows: ExportedRow[];
  /** Rows of the store that were looked at for them. */
  looked: number;
  /** Those of `rows` of which a list was cut. */
  cut: number;
  /** Where the next page begins, for `pages`. */
  last: string;
}

/** Where the rows of one kind come from. */
export interface Source {
  /** Place of a run that is the first one. */
  first: string;
  /** Rows of one page at most. */
  most: number;
  /** Rows of a file at most, unless told. */
  rowsOfFile: number;
  /** Of a Parquet file; a column takes the member of its name, and those of an alias the members of `user_alias`. */
  columns: ParquetColumn[];
  /** Page by page to the end, in the order of keys. */
  pages(after: string): AsyncGenerator<Page, void>;
  /** About how many rows there are to look at behind a place. */
  estimate(after: string): Promise<number>;
}

/** What sources are made from. */
export interface Reading {
  wanted: Wanted;
  /** Within the snapshot. */
  connection: Connection;
  serviceIdField: string;
  /** Asked between two pages. */
  leaving: AbortSignal;
  /** Rows that are looked at at once, unless as many as fit the kind. */
  lookedAt?: number | undefined;
}
