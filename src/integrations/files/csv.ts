import { createReadStream } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { readAt } from '../../platform/files.ts';
import { createRecordScanner, DELIMITERS, MAX_HEADER_BYTES, separatorLineOf } from '../csv-scanner.ts';
import { foreignFormatOf } from '../foreign-formats.ts';
import { SourceError } from '../source.ts';
import type { InputFile } from './input.ts';
import type { Scratch } from './scratch.ts';

export interface CsvHeader {
  /** Lines before the header: 1 if the file begins with `sep=;`, otherwise 0. */
  linesBefore: number;
  delimiter: string;
  names: string[];
}

/**
 * Reads the header of a CSV file. The delimiter (comma, semicolon, tab or bar) is the one with which a column
 * is named UPDATED_AT. Counting delimiters would not work, because payloads contain all of them.
 * @returns undefined for an empty file
 * @throws {SourceError} `config` if the first line exceeds 64 KiB, or the file is not a text
 */
export async function readHeader(file: InputFile): Promise<CsvHeader | undefined> {
  const start = await readStart(file);
  if (start.length === 0) return undefined;
  // The decoder removes the byte order mark. The bytes may end within a character, but not within a name.
  const wholeText = new TextDecoder('utf-8').decode(start);
  const foreign = start.subarray(0, 4).equals(ZIP) ? ZIPPED : foreignFormatOf(start);
  if (foreign) throw new SourceError('config', `${file.name} is ${foreign}`);
  const separatorLine = separatorLineOf(wholeText);
  const [text, linesBefore] = [wholeText.slice(separatorLine?.length ?? 0), separatorLine ? 1 : 0];
  const headers = (separatorLine ? [separatorLine.delimiter] : DELIMITERS).map((delimiter) => ({
    delimiter,
    names: parseLine(text, delimiter),
  }));
  const header =
    headers.find(({ names }) => names?.some((name) => name.toLowerCase() === 'updated_at')) ?? headers[0]!;
  const { delimiter, names } = header;
  if (names?.some((name) => name.includes('\ufffd'))) {
    throw new SourceError('config', `${file.name}: the first line is not in UTF-8`);
  }
  if (names) return { linesBefore, delimiter, names };
  if (start.length < MAX_HEADER_BYTES)
    return { linesBefore, delimiter, names: parseLine(`${text}\n`, delimiter) ?? [] };
  throw new SourceError('config', `${file.name}: the first line is longer than ${MAX_HEADER_BYTES} bytes`);
}

const ZIP = Buffer.from('PK\x03\x04', 'latin1');
const ZIPPED = 'a zip archive or an Excel workbook: save it as CSV in UTF-8, optionally compressed with gzip';

async function readStart(file: InputFile): Promise<Buffer> {
  const handle = await open(file.path);
  try {
    return await readAt(handle, 0, MAX_HEADER_BYTES);
  } finally {
    await handle.close();
  }
}

/** Splits the first line into names, quoted or not. Returns undefined if the line does not end. */
function parseLine(text: string, delimiter: string): string[] | undefined {
  const names: string[] = [];
  let at = 0;
  while (true) {
    let name = '';
    if (text[at] === '"') {
      for (at += 1; text[at] !== '"' || text[at + 1] === '"'; at += 1) {
        if (at >= text.length) return undefined;
        name += text[at];
        if (text[at] === '"') at += 1;
      }
      at += 1;
    }
    for (; text[at] !== delimiter && text[at] !== '\n' && text[at] !== '\r'; at += 1) {
      if (at >= text.length) return undefined;
      name += text[at];
    }
    names.push(name.trim());
    if (text[at] !== delimiter) return names;
    at += 1;
  }
}

/**
 * Bytes of a piece. DuckDB keeps a file with a sequential scan completely in memory, at twice its size, and
 * fails if that exceeds its limit. Longer files are split into pieces between two records.
 */
const PIECE_BYTES = 16_777_216;

/** Maximum bytes of the header record. `readHeader` has found its end within fewer bytes. */
const MAX_HEADER_RECORD_BYTES = 131_072;

/**
 * Checks a CSV file, and splits it if it is long. The pieces replace the file, and each begins with the
 * header. A quote that is never closed turns the rest of the file into one value, which DuckDB drops
 * silently, so it is detected here.
 * @returns an empty list for an empty file
 * @throws {SourceError} `config` without a header, or if the space is not sufficient; `failed` if the file
 * cannot be read
 */
export async function cutCsv(
  file: InputFile,
  scratch: Pick<Scratch, 'take' | 'drop'>,
  { signal, pieceBytes = PIECE_BYTES }: { signal?: AbortSignal; pieceBytes?: number } = {},
): Promise<InputFile[]> {
  const header = await readHeader(file);
  if (!header) return [];
  const scanner = createRecordScanner(header.delimiter);
  let isCut = (await stat(file.path)).size > pieceBytes;
  const pieces: InputFile[] = [];
  let piece: FileHandle | undefined;
  let [head, headEnded] = [Buffer.alloc(0), false];
  let linesToHead = header.linesBefore;
  /** Bytes written to the piece, and the bytes of its complete records. */
  let [written, whole] = [0, 0];
  let records = 0;

  async function write(bytes: Buffer): Promise<void> {
    await scratch.take(bytes.length + (piece ? 0 : head.length), file.name);
    if (!piece) {
      const path = `${file.path}.${pieces.length}.csv`;
      piece = await open(path, 'w', 0o600);
      pieces.push({ name: file.name, path, recordsBefore: records });
      await piece.writeFile(head);
      written = head.length;
      whole = written;
    }
    await piece.writeFile(bytes);
    written += bytes.length;
  }

  async function endPiece(): Promise<void> {
    await piece?.close();
    piece = undefined;
  }

  async function take(chunk: Buffer): Promise<void> {
    const ends: number[] = [];
    scanner.scan(chunk, (end) => ends.push(end));
    if (!isCut) return;
    let from = 0;
    while (!headEnded) {
      const end = ends.shift();
      head = Buffer.concat([head, chunk.subarray(from, end)]);
      if (end === undefined) {
        isCut = head.length < MAX_HEADER_RECORD_BYTES;
        return;
      }
      headEnded = linesToHead === 0;
      linesToHead -= 1;
      from = end;
    }
    const lastEnd = ends.at(-1);
    if (lastEnd === undefined) return write(chunk.subarray(from));
    await write(chunk.subarray(from, lastEnd));
    whole = written;
    records += ends.length;
    if (written >= pieceBytes) await endPiece();
    if (lastEnd < chunk.length) await write(chunk.subarray(lastEnd));
  }

  async function takeAll(source: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of source) await take(chunk);
  }
  const read = createReadStream(file.path, { highWaterMark: 1_048_576 });
  const options = signal ? { signal } : {};
  try {
    await pipeline(read, takeAll, options);
    if (scanner.open() !== undefined) await piece?.truncate(whole);
  } catch (error) {
    signal?.throwIfAborted();
    if (error instanceof SourceError) throw error;
    throw new SourceError('failed', `${file.name}: ${(error as Error).message}`, { cause: error });
  } finally {
    await endPiece();
  }
  if (!headEnded) pieces.push({ ...file, recordsBefore: 0 });
  else if (isCut) await scratch.drop(file.path);
  const [openQuote, last] = [scanner.open(), pieces.at(-1)];
  if (openQuote !== undefined && last) last.openQuote = openQuote;
  return pieces;
}
