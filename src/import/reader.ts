import { isUtf8 } from 'node:buffer';
import { createRecordScanner, guessDelimiter, separatorLineOf } from '../integrations/csv-scanner.ts';
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
  /** Columns of the header. Absent where each row names its own. */
  columns: string[] | undefined;
  /** Of the columns, those without a name in the header: `#2` is the second column. */
  unnamed: readonly string[];
  rows: AsyncIterable<RawRow[]>;
  /** Only of rows that are not passed over. */
  read(row: RawRow): ReadRow;
}

/** How a part is written, as far as an option says it. */
interface PartOptions {
  layout: Layout;
  /** Absent: the header tells. */
  delimiter?: string | undefined;
  /** Columns to leave out; an empty name stands for all columns without a name. */
  ignore?: readonly string[];
}

/** @throws {ImportError} when the part cannot be read as a whole: it names the part, the cause and the remedy */
export async function readPart(part: Part, options: PartOptions): Promise<Rows> {
  if (options.layout === 'csv') return readCsv(part, options);
  return options.layout === 'ndjson' ? readLines(part) : readTable(part);
}

/** An object of JSON on each line. */
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

/** @throws {ImportError} when the first line shows that one JSON value takes several lines, or holds all rows */
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

/** Rows of a table: where a column has nothing, nothing is said. */
function readTable({ name, bytes }: Part): Rows {
  return {
    ...{ ...NO_HEADER, name, rows: splitRecords(bytes(), scanLines()) },
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
    return {
      refused: `the line is not valid JSON: ${(error as Error).message}; write one JSON object per line`,
    };
  }
  return isRecord(value)
    ? { values: value }
    : { refused: 'the line is not a JSON object; write one JSON object per line' };
}

/** The mark that some programs put at the beginning of a text. */
const withoutMark = (text: string) => (text.startsWith('\ufeff') ? text.slice(1) : text);

/** Most columns of a file. */
const MOST_COLUMNS = 2000;

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
  if (!split) throw unreadable(BEHIND_QUOTE);
  const { columns, unnamed } = columnsOf(split, name, ignore);

  async function* rows(): AsyncGenerator<RawRow[]> {
    const below = (row: RawRow) => ({ ...row, number: row.number - header!.number });
    if (batch.length > 0) yield batch.map(below);
    for await (const more of batches) yield more.map(below);
  }

  function read({ text, refused }: RawRow): ReadRow {
    if (refused !== undefined) return { refused };
    const cells = splitRecord(text, delimiter);
    if (!cells) return { refused: BEHIND_QUOTE };
    if (cells.length !== columns.length)
      return {
        refused: `the row has ${cells.length} values, but the header has ${columns.length} columns; quote values that contain ${shownDelimiter(delimiter)} or a line break`,
      };
    const values: Values = {};
    for (let place = 0; place < columns.length; place++) values[columns[place]!] = cells[place]!;
    return { values };
  }
  return { name, columns, unnamed, rows: rows(), read };
}

const BEHIND_QUOTE = 'there is text after a closing quote; double each quote inside a quoted value';

const shownDelimiter = (delimiter: string) => (delimiter === '\t' ? 'a tab' : `'${delimiter}'`);

/** The first characters of a file: enough to know its delimiter by. */
async function startOf(chunks: AsyncIterable<Buffer>): Promise<string> {
  for await (const chunk of chunks) return chunk.toString('utf8', 0, START_BYTES);
  return '';
}

const START_BYTES = 65_536;

function columnsOf(
  header: readonly string[],
  name: string,
  ignore: readonly string[],
): Pick<Rows, 'unnamed'> & { columns: string[] } {
  const columns = header.map((column) => column.trim());
  if (columns.length > MOST_COLUMNS)
    throw new ImportError(`${name}: the header has more than ${MOST_COLUMNS} columns`);
  const unnamed: string[] = [];
  columns.forEach((column, place) => {
    if (column === '') {
      const number = `#${place + 1}`;
      if (!ignore.includes('') && !ignore.includes(number))
        throw new ImportError(
          `${name}: column ${place + 1} of the header has no name; name it, or ignore it with --ignore '${number}'`,
        );
      unnamed.push(number);
      columns[place] = number;
    }
    if (column === '__proto__')
      throw new ImportError(
        `${name}: column ${place + 1} of the header has a name that is not a valid field name: ${column}`,
      );
    if (columns.indexOf(columns[place]!) < place)
      throw new ImportError(
        `${name}: the header has the column ${column} twice, the second time as column ${place + 1}; rename one of them`,
      );
  });
  return { columns, unnamed };
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
  /** The line of the file, from 1, in which the row begins. */
  line: number;
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
const CR = 0x0d;

/** Every line break ends a record. */
export function scanLines(): Scanner {
  return { scan: createRecordScanner().scan, open: () => false };
}

/** A line break within quotes ends none. */
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
  let line = 1;
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
    const place = { number, line };
    line += lineBreaks(record);
    return isLong ? tooLong(place, record) : rowOf(place, record);
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
  yield [isOpen ? { ...last, text: last.text.slice(0, SHOWN), refused } : last];
}

type Place = Pick<RawRow, 'number' | 'line'>;

/** Line breaks of a record with the one that ends it; of a record that is too long, those of its beginning. */
function lineBreaks(record: Buffer): number {
  const end = record.length - 1;
  let at = record.indexOf(LF);
  // Nearly every record has one line break, which ends it.
  if ((at === -1 || at === end) && !record.subarray(0, Math.max(0, end - 1)).includes(CR)) return 1;
  let breaks = 0;
  for (at = 0; at <= end; at++)
    if (record[at] === LF || (record[at] === CR && record[at + 1] !== LF)) breaks += 1;
  return Math.max(1, breaks);
}

function tooLong(place: Place, record: Buffer): RawRow {
  const text = record.subarray(0, SHOWN).toString('utf8');
  return { ...place, text, refused: `the row is longer than ${MOST_ROW_BYTES} bytes` };
}

function rowOf(place: Place, record: Buffer): RawRow | undefined {
  let to = record.length;
  if (record[to - 1] === LF) to -= 1;
  if (record[to - 1] === CR) to -= 1;
  if (to === 0) return undefined;
  const text = record.toString('utf8', 0, to);
  // A character that stands for bytes which are none may also have been written down as such.
  if (!text.includes('\ufffd') || isUtf8(record)) return { ...place, text };
  return {
    ...place,
    text: text.slice(0, SHOWN),
    refused: 'the row is not in UTF-8; convert the file to UTF-8',
  };
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
