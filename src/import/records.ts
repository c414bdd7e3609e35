import { isUtf8 } from 'node:buffer';
import { createRecordScanner } from '../integrations/csv-scanner.ts';

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
export function scanCsv(delimiter: string): Scanner {
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

const DELIMITERS = [',', ';', '\t', '|'];

/** Of comma, semicolon, tab and bar, the one that parts a header into the most names. */
export function delimiterOf(header: string): string {
  const counts = DELIMITERS.map((delimiter) => splitRecord(header, delimiter)?.length ?? 0);
  return DELIMITERS[counts.indexOf(Math.max(...counts))]!;
}
