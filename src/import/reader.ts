import { isUtf8 } from 'node:buffer';
import { createRecordScanner, DELIMITERS } from '../integrations/csv-scanner.ts';
import type { Json } from '../profile/json.ts';
import { isRecord } from '../profile/values.ts';
import { ImportError, type Part } from './unpack.ts';

/** How the rows of a file are written. */
export const layouts = ['csv', 'ndjson', 'parquet', 'avro'] as const;
export type Layout = (typeof layouts)[number];

/** What a row says: by column, as it stands there. */
export type Values = Record<string, Json>;

/** What could be read of a row, or why it says nothing. */
type ReadRow = { values: Values } | Refusal;

/** Why a row is refused, and which field of it is to blame; absent: none alone. */
export interface Refusal {
  refused: string;
  field?: string;
}

/** The rows of one part, in their order. */
interface Rows {
  /** For messages. */
  name: string;
  /** Of a file with a header; of any other, each row says its own. */
  columns: string[] | undefined;
  rows: AsyncIterable<RawRow[]>;
  /** Only of rows that are not passed over. */
  read(row: RawRow): ReadRow;
}

/** @throws {ImportError} when the header is missing, or names a column twice */
export async function readPart(part: Part, layout: Layout, delimiter?: string): Promise<Rows> {
  if (layout === 'csv') return readCsv(part, delimiter);
  return layout === 'ndjson' ? readLines(part) : readTable(part);
}

/** An object of JSON on each line. */
function readLines({ name, bytes }: Part): Rows {
  return { name, columns: undefined, rows: splitRecords(bytes(), scanLines()), read: readObject };
}

/** Rows of a table: where a column has nothing, nothing is said. */
function readTable(part: Part): Rows {
  return {
    ...readLines(part),
    read(row) {
      const said = readObject(row);
      if ('refused' in said) return said;
      return {
        values: Object.fromEntries(Object.entries(said.values).filter(([, value]) => value !== null)),
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
    return { refused: `the line is no JSON: ${(error as Error).message}` };
  }
  return isRecord(value) ? { values: value } : { refused: 'the line is no JSON object' };
}

/** The mark that some programs put at the beginning of a text. */
const withoutMark = (text: string) => (text.startsWith('\ufeff') ? text.slice(1) : text);

/** Most columns of a file. */
const MOST_COLUMNS = 2000;

async function readCsv({ name, bytes }: Part, given: string | undefined): Promise<Rows> {
  const header = withoutMark(await firstLine(bytes()));
  const delimiter = given ?? delimiterOf(header);
  const records = splitRecords(bytes(), scanCsv(delimiter));
  const { done, value: batch } = await records.next();
  const [first, ...others] = done ? [] : batch;
  if (!first || first.refused !== undefined)
    throw new ImportError(`${name}: the header cannot be read: ${first?.refused ?? 'the file has no row'}`);
  const columns = columnsOf(withoutMark(first.text), delimiter, name);

  async function* rows(): AsyncGenerator<RawRow[]> {
    const below = (row: RawRow) => ({ ...row, number: row.number - first!.number });
    if (others.length > 0) yield others.map(below);
    for await (const more of records) yield more.map(below);
  }

  function read({ text, refused }: RawRow): ReadRow {
    if (refused !== undefined) return { refused };
    const cells = splitRecord(text, delimiter);
    if (!cells) return { refused: 'something stands behind a closing quote' };
    if (cells.length !== columns.length)
      return { refused: `the row has ${cells.length} values, and the header ${columns.length} columns` };
    const values: Values = {};
    for (let place = 0; place < columns.length; place++) values[columns[place]!] = cells[place]!;
    return { values };
  }
  return { name, columns, rows: rows(), read };
}

/** Enough of a file to know its delimiter by. */
async function firstLine(chunks: AsyncIterable<Buffer>): Promise<string> {
  for await (const chunk of chunks) {
    const end = chunk.indexOf('\n');
    return chunk.toString('utf8', 0, end === -1 ? chunk.length : end).replace(/\r$/, '');
  }
  return '';
}

function columnsOf(header: string, delimiter: string, name: string): string[] {
  const columns = splitRecord(header, delimiter)?.map((column) => column.trim());
  if (!columns)
    throw new ImportError(`${name}: the header cannot be read: something stands behind a closing quote`);
  if (columns.length > MOST_COLUMNS)
    throw new ImportError(`${name}: the header has more than ${MOST_COLUMNS} columns`);
  columns.forEach((column, place) => {
    if (column === '' || column === '__proto__')
      throw new ImportError(
        `${name}: column ${place + 1} of the header has ${column === '' ? 'no name' : 'a name that no field can have'}`,
      );
    if (columns.indexOf(column) < place)
      throw new ImportError(`${name}: the header has the column ${column} twice`);
  });
  return columns;
}

/** Bytes of the longest row: a payload of the longest kind, of which every character is a quote and doubled. */
export const MOST_ROW_BYTES = 4_194_304;

/** A line for a row of a table that is too long: its bytes are not made, and it is refused as any such line. */
export function longLine(): Buffer {
  const line = Buffer.alloc(MOST_ROW_BYTES + 2, ' ');
  line.write('(not shown)');
  line[line.length - 1] = LF;
  return line;
}

/** Characters of a row that cannot be read which are kept to show it by. */
const SHOWN = 200;

/** A row as it stands in its file; `refused`: it cannot even be read, and why. */
export interface RawRow {
  /** From 1: the line of an NDJSON file; the record below the header of a CSV file; the row of a Parquet file. */
  number: number;
  text: string;
  refused?: string;
}

/** Finds where records end in bytes that come in chunks. */
interface Scanner {
  scan(chunk: Buffer, onEnd: (end: number) => void): void;
  /** Whether a quote is open that ought to be closed by now. */
  open(): boolean;
}

const LF = 0x0a;

/** Every line feed ends a record. */
export function scanLines(): Scanner {
  return {
    scan(chunk, onEnd) {
      for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, end + 1)) onEnd(end + 1);
    },
    open: () => false,
  };
}

/** A line feed within quotes ends none. */
function scanCsv(delimiter: string): Scanner {
  const scanner = createRecordScanner(delimiter);
  return { scan: scanner.scan, open: () => scanner.open() !== undefined };
}

/**
 * Parts bytes into records, in batches as they come. Memory stays bounded: of a record that is longer than one may be,
 * only the beginning is kept, and the reading goes on behind its end. Records that are empty are counted and left out.
 */
export async function* splitRecords(
  chunks: AsyncIterable<Buffer>,
  scanner: Scanner,
): AsyncGenerator<RawRow[]> {
  let number = 0;
  /** Of the record that has begun: its pieces, as far as they are kept, and the bytes of all of them. */
  let pieces: Buffer[] = [];
  let bytes = 0;

  function keep(piece: Buffer): void {
    if (bytes <= MOST_ROW_BYTES) pieces.push(piece);
    bytes += piece.length;
  }

  function end(): RawRow | undefined {
    const record = pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces);
    const isLong = bytes > MOST_ROW_BYTES;
    pieces = [];
    bytes = 0;
    number += 1;
    return isLong ? tooLong(number, record) : rowOf(number, record);
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
    'a quote opens in this row and is not closed before the end of the file: nothing from here on is read';
  yield [isOpen ? { ...last, text: last.text.slice(0, SHOWN), refused } : last];
}

function tooLong(number: number, record: Buffer): RawRow {
  const text = record.subarray(0, SHOWN).toString('utf8');
  return { number, text, refused: `the row is longer than ${MOST_ROW_BYTES} bytes` };
}

function rowOf(number: number, record: Buffer): RawRow | undefined {
  let to = record.length;
  if (record[to - 1] === LF) to -= 1;
  if (record[to - 1] === 0x0d) to -= 1;
  if (to === 0) return undefined;
  const text = record.toString('utf8', 0, to);
  // A character that stands for bytes which are none may also have been written down as such.
  if (!text.includes('\ufffd') || isUtf8(record)) return { number, text };
  return { number, text: text.slice(0, SHOWN), refused: 'the row is not in UTF-8' };
}

/**
 * The values of a CSV record (RFC 4180). Spaces may stand around quotes.
 * @returns undefined when something stands behind a closing quote
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
    const behind = skipSpaces(text, close + 1);
    if (behind === text.length) return values;
    if (text[behind] !== delimiter) return undefined;
    at = behind + 1;
  }
}

function skipSpaces(text: string, from: number): number {
  let at = from;
  while (text[at] === ' ') at += 1;
  return at;
}

/** The next quote that is not doubled; -1: there is none. */
function closingQuote(text: string, from: number): number {
  let at = text.indexOf('"', from);
  while (at !== -1 && text[at + 1] === '"') at = text.indexOf('"', at + 2);
  return at;
}

/** Of comma, semicolon, tab and bar, the one that parts a header into the most names. */
function delimiterOf(header: string): string {
  const counts = DELIMITERS.map((delimiter) => splitRecord(header, delimiter)?.length ?? 0);
  return DELIMITERS[counts.indexOf(Math.max(...counts))]!;
}
