import { isUtf8 } from 'node:buffer';
import {
  createRecordScanner,
  guessDelimiter,
  MAX_HEADER_BYTES,
  MAX_ROW_BYTES,
  separatorLineOf,
} from '../integrations/csv-scanner.ts';
import type { Json } from '../profile/json.ts';
import { isRecord } from '../profile/values.ts';
import { ImportError, type Part } from './unpack.ts';

/** File formats of rows. */
export const layouts = ['csv', 'ndjson', 'parquet', 'avro'] as const;
export type Layout = (typeof layouts)[number];

/** The values of a row by column, before they are mapped. */
export type Values = Record<string, Json>;

/** The values of a row, or the reason why it cannot be read. */
export type ReadRow = { values: Values } | Refusal;

/** Why a row is refused, and the field that caused it, if a single field did. */
export interface Refusal {
  refused: string;
  field?: string;
}

/** The rows of one part in the order of the file. */
interface Rows {
  /** Name of the part in messages. */
  name: string;
  /** Columns of the header; undefined if each row names its own columns. */
  columns: string[] | undefined;
  /** Columns without a name in the header, for example `#2` for the second column. */
  unnamed: readonly string[];
  rows: AsyncIterable<RawRow[]>;
  /** Parses a row. Call it only for rows that are used. */
  read(row: RawRow): ReadRow;
}

/** Options for reading a part. */
interface PartOptions {
  layout: Layout;
  /** Delimiter of a CSV file; detected from the header if absent. */
  delimiter?: string | undefined;
  /** Columns to omit; an empty name means all columns without a name. */
  ignore?: readonly string[];
}

/**
 * @throws {ImportError} if the part cannot be read at all; the message names the part, the cause and the fix
 */
export async function readPart(part: Part, options: PartOptions): Promise<Rows> {
  if (options.layout === 'csv') return readCsv(part, options);
  return options.layout === 'ndjson' ? readLines(part) : readTable(part);
}

/** Reads a file with one JSON object per line. */
async function readLines(part: Part): Promise<Rows> {
  const batches = splitRecords(part.bytes(), scanLines());
  const { done, value: first } = await batches.next();
  if (!done) requireLines(first[0]!, part.name);
  async function* rows(): AsyncGenerator<RawRow[]> {
    if (!done) yield first;
    yield* batches;
  }
  return { ...NO_HEADER, name: part.name, rows: rows(), read: readObject };
}

const NO_HEADER = { columns: undefined, unnamed: [] } as const;

/**
 * @throws {ImportError} if the first line shows that one JSON value spans several lines or contains all rows
 */
function requireLines({ text }: RawRow, name: string): void {
  const start = withoutMark(text).trim();
  if (start.startsWith('['))
    throw new ImportError(
      `${name}, line 1: the file is a JSON array, but one JSON object per line is required; convert it with jq -c '.[]'`,
    );
  if (start === '{')
    throw new ImportError(
      `${name}, line 1: a JSON object spans several lines, but one JSON object per line is required; convert it with jq -c .`,
    );
}

/** Reads the rows of a table. Empty columns of a row are omitted. */
function readTable({ name, bytes }: Part): Rows {
  return {
    ...{ ...NO_HEADER, name, rows: splitRecords(bytes(), scanLines()) },
    read(row) {
      const parsed = readObject(row);
      if ('refused' in parsed) return parsed;
      return {
        values: Object.fromEntries(Object.entries(parsed.values).filter(([, value]) => value !== null)),
      };
    },
  };
}

function readObject({ number, text, refused }: RawRow): ReadRow {
  if (refused !== undefined) return { refused };
  let value: Json;
  try {
    value = JSON.parse(number === 1 ? withoutMark(text) : text);
  } catch (error) {
    return {
      refused: `the line is not valid JSON: ${(error as Error).message}; write one JSON object per line`,
    };
  }
  return isRecord(value)
    ? { values: value }
    : { refused: 'the line is not a JSON object; write one JSON object per line' };
}

/** Removes the byte order mark. */
const withoutMark = (text: string) => (text.startsWith('\ufeff') ? text.slice(1) : text);

/** Maximum number of columns of a file. */
const MAX_COLUMNS = 2000;

async function readCsv({ name, bytes }: Part, { delimiter: given, ignore = [] }: PartOptions): Promise<Rows> {
  const start = withoutMark(await startOf(bytes()));
  const separatorLine = separatorLineOf(start);
  const delimiter = given ?? separatorLine?.delimiter ?? guessDelimiter(start);
  const batches = splitRecords(bytes(), scanCsv(delimiter));
  let batch: RawRow[] = [];
  async function next(): Promise<RawRow | undefined> {
    while (batch.length === 0) {
      const { done, value } = await batches.next();
      if (done) return undefined;
      batch = value;
    }
    return batch.shift();
  }
  if (separatorLine) await next();
  const header = await next();
  const unreadable = (cause: string) => new ImportError(`${name}: the header cannot be read: ${cause}`);
  if (!header) throw unreadable('the file has no rows');
  if (header.refused !== undefined) throw unreadable(header.refused);
  const split = splitRecord(withoutMark(header.text), delimiter);
  if (!split) throw unreadable(TEXT_AFTER_QUOTE);
  const { columns, unnamed } = columnsOf(split, name, ignore);

  async function* rows(): AsyncGenerator<RawRow[]> {
    const fromHeader = (row: RawRow) => ({ ...row, number: row.number - header!.number });
    if (batch.length > 0) yield batch.map(fromHeader);
    for await (const more of batches) yield more.map(fromHeader);
  }

  function read({ text, refused }: RawRow): ReadRow {
    if (refused !== undefined) return { refused };
    const cells = splitRecord(text, delimiter);
    if (!cells) return { refused: TEXT_AFTER_QUOTE };
    if (cells.length !== columns.length)
      return {
        refused: `the row has ${cells.length} values, but the header has ${columns.length} columns; quote values that contain ${shownDelimiter(delimiter)} or a line break`,
      };
    const values: Values = {};
    for (let index = 0; index < columns.length; index++) values[columns[index]!] = cells[index]!;
    return { values };
  }
  return { name, columns, unnamed, rows: rows(), read };
}

const TEXT_AFTER_QUOTE = 'there is text after a closing quote; double each quote inside a quoted value';

const shownDelimiter = (delimiter: string) => (delimiter === '\t' ? 'a tab' : `'${delimiter}'`);

/** Returns the first characters of a file, from which its delimiter is detected. */
async function startOf(chunks: AsyncIterable<Buffer>): Promise<string> {
  for await (const chunk of chunks) return chunk.toString('utf8', 0, MAX_HEADER_BYTES);
  return '';
}

function columnsOf(
  header: readonly string[],
  name: string,
  ignore: readonly string[],
): Pick<Rows, 'unnamed'> & { columns: string[] } {
  const columns = header.map((column) => column.trim());
  if (columns.length > MAX_COLUMNS)
    throw new ImportError(`${name}: the header has more than ${MAX_COLUMNS} columns`);
  const unnamed: string[] = [];
  columns.forEach((column, index) => {
    if (column === '') {
      const number = `#${index + 1}`;
      if (!ignore.includes('') && !ignore.includes(number))
        throw new ImportError(
          `${name}: column ${index + 1} of the header has no name; name it, or ignore it with --ignore '${number}'`,
        );
      unnamed.push(number);
      columns[index] = number;
    }
    if (column === '__proto__')
      throw new ImportError(
        `${name}: column ${index + 1} of the header has a name that is not a valid field name: ${column}`,
      );
    if (columns.indexOf(columns[index]!) < index)
      throw new ImportError(
        `${name}: the header has the column ${column} twice, the second time as column ${index + 1}; rename one of them`,
      );
  });
  return { columns, unnamed };
}

/**
 * Returns the line that replaces a row of a table that is too long. The line itself is longer than the limit,
 * so it is refused like any long line.
 */
export function longLine(): Buffer {
  const line = Buffer.alloc(MAX_ROW_BYTES + 2, ' ');
  line.write('(not shown)');
  line[line.length - 1] = LF;
  return line;
}

/** Number of characters that are kept of a row that cannot be read, for display. */
const SHOWN_CHARACTERS = 200;

/** A row of a file. `refused` is the reason if the row cannot be read at all. */
export interface RawRow {
  /**
   * Number of the row, from 1: the line of an NDJSON file, the record after the header of a CSV file, or the
   * row of a table.
   */
  number: number;
  /** Line of the file, from 1, in which the row begins. */
  line: number;
  text: string;
  refused?: string;
}

/** Finds the ends of records in chunks of bytes. */
interface Scanner {
  scan(chunk: Buffer, onEnd: (end: number) => void): void;
  /** Returns whether a quote is still open, which is an error at the end of the file. */
  open(): boolean;
}

const LF = 0x0a;
const CR = 0x0d;

/** Creates a scanner for which every line break ends a record. */
function scanLines(): Scanner {
  return { scan: createRecordScanner().scan, open: () => false };
}

/** Creates a scanner for CSV, in which a line break in quotes does not end a record. */
function scanCsv(delimiter: string): Scanner {
  const scanner = createRecordScanner(delimiter);
  return { scan: scanner.scan, open: () => scanner.open() !== undefined };
}

/**
 * Splits bytes into records and returns them in batches as they arrive. Memory is limited: only the beginning
 * of a record that exceeds the maximum is kept, and reading continues after its end. Empty records are
 * counted but not returned.
 */
async function* splitRecords(chunks: AsyncIterable<Buffer>, scanner: Scanner): AsyncGenerator<RawRow[]> {
  let number = 0;
  let line = 1;
  /** The pieces of the current record that are kept, and the number of bytes of all its pieces. */
  let pieces: Buffer[] = [];
  let bytes = 0;

  function keep(piece: Buffer): void {
    if (bytes <= MAX_ROW_BYTES) pieces.push(piece);
    bytes += piece.length;
  }

  function end(): RawRow | undefined {
    const record = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
    const isLong = bytes > MAX_ROW_BYTES;
    pieces = [];
    bytes = 0;
    number += 1;
    const position = { number, line };
    line += lineBreaks(record);
    return isLong ? tooLong(position, record) : rowOf(position, record);
  }

  for await (const chunk of chunks) {
    const rows: RawRow[] = [];
    let from = 0;
    scanner.scan(chunk, (to) => {
      keep(chunk.subarray(from, to));
      from = to;
      const row = end();
      if (row) rows.push(row);
    });
    if (from < chunk.length) keep(chunk.subarray(from));
    if (rows.length > 0) yield rows;
  }
  if (bytes === 0) return;
  const isOpen = scanner.open();
  const last = end();
  if (!last) return;
  const refused =
    'a quote opens in this row and is not closed before the end of the file, so the rest of the file was not read; close the quote';
  yield [isOpen ? { ...last, text: last.text.slice(0, SHOWN_CHARACTERS), refused } : last];
}

type Position = Pick<RawRow, 'number' | 'line'>;

/**
 * Counts the line breaks of a record, including the one at its end. For a record that is too long, only those
 * of its beginning are counted.
 */
function lineBreaks(record: Buffer): number {
  const end = record.length - 1;
  let at = record.indexOf(LF);
  // Nearly every record has only the line break that ends it.
  if ((at === -1 || at === end) && !record.subarray(0, Math.max(0, end - 1)).includes(CR)) return 1;
  let breaks = 0;
  for (at = 0; at <= end; at++)
    if (record[at] === LF || (record[at] === CR && record[at + 1] !== LF)) breaks += 1;
  return Math.max(1, breaks);
}

function tooLong(position: Position, record: Buffer): RawRow {
  const text = record.subarray(0, SHOWN_CHARACTERS).toString('utf8');
  return { ...position, text, refused: `the row is longer than ${MAX_ROW_BYTES} bytes` };
}

function rowOf(position: Position, record: Buffer): RawRow | undefined {
  let to = record.length;
  if (record[to - 1] === LF) to -= 1;
  if (record[to - 1] === CR) to -= 1;
  if (to === 0) return undefined;
  const text = record.toString('utf8', 0, to);
  // The replacement character appears for invalid UTF-8, but a text may also contain it legitimately.
  if (!text.includes('\ufffd') || isUtf8(record)) return { ...position, text };
  return {
    ...position,
    text: text.slice(0, SHOWN_CHARACTERS),
    refused: 'the row is not in UTF-8; convert the file to UTF-8',
  };
}

/**
 * Splits a CSV record into values (RFC 4180). Spaces around quotes are allowed.
 * @returns undefined if text follows a closing quote
 */
export function splitRecord(text: string, delimiter: string): string[] | undefined {
  if (!text.includes('"')) return text.split(delimiter);
  const values: string[] = [];
  for (let at = 0; ; ) {
    const quote = skipSpaces(text, at);
    if (text[quote] !== '"') {
      const end = text.indexOf(delimiter, at);
      if (end === -1) {
        values.push(text.slice(at));
        return values;
      }
      values.push(text.slice(at, end));
      at = end + 1;
      continue;
    }
    const close = closingQuote(text, quote + 1);
    if (close === -1) return undefined;
    values.push(text.slice(quote + 1, close).replaceAll('""', '"'));
    const after = skipSpaces(text, close + 1);
    if (after === text.length) return values;
    if (text[after] !== delimiter) return undefined;
    at = after + 1;
  }
}

function skipSpaces(text: string, from: number): number {
  let at = from;
  while (text[at] === ' ') at += 1;
  return at;
}

/** Returns the position of the next quote that is not doubled, or -1. */
function closingQuote(text: string, from: number): number {
  let at = text.indexOf('"', from);
  while (at !== -1 && text[at + 1] === '"') at = text.indexOf('"', at + 2);
  return at;
}
