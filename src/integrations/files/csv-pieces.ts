import { createReadStream } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { SourceError } from '../source.ts';
import { readHeader } from './csv-header.ts';
import { createRecordScanner } from './csv-records.ts';
import type { InputFile } from './input-files.ts';

/**
 * Of a file that is read from its first byte on, DuckDB keeps all of it in memory, twice its size, until it is through,
 * and fails when that is more than it may have. Longer files are cut into pieces between two records.
 */
const PIECE_BYTES = 16_777_216;

/** `readHeader` has found the end of one within fewer. */
const MOST_HEADER_BYTES = 131_072;

/**
 * Looks through a CSV file, and cuts it if it is long, or packed. Pieces stand beside the file, and each begins with the
 * header. A quote that is never closed makes one value of all that stands behind it, however many lines it was meant to
 * be, which DuckDB drops without a word: it is found here.
 * @returns no piece of an empty file
 * @throws {SourceError} `config` without a header; `failed` when it cannot be read
 */
export async function cutCsv(
  file: InputFile,
  signal?: AbortSignal,
  pieceBytes = PIECE_BYTES,
): Promise<InputFile[]> {
  const header = await readHeader(file);
  if (!header) return [];
  const scanner = createRecordScanner(header.delimiter);
  const packed = file.path.endsWith('.gz');
  let isCut = packed || (await stat(file.path)).size > pieceBytes;
  const pieces: InputFile[] = [];
  let piece: FileHandle | undefined;
  let [head, headEnded] = [Buffer.alloc(0), false];
  /** Bytes in the piece, and of them those of whole records. */
  let [written, whole] = [0, 0];
  let records = 0;

  async function write(bytes: Buffer): Promise<void> {
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
    if (!headEnded) {
      const end = ends.shift();
      head = Buffer.concat([head, chunk.subarray(0, end)]);
      if (end === undefined) {
        // Its lines end in CR alone: it is left in one piece.
        isCut = head.length < MOST_HEADER_BYTES;
        return;
      }
      headEnded = true;
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
    await (packed ? pipeline(read, createGunzip(), takeAll, options) : pipeline(read, takeAll, options));
    if (scanner.open() !== undefined) await piece?.truncate(whole);
  } catch (error) {
    signal?.throwIfAborted();
    throw new SourceError('failed', `${file.name}: ${(error as Error).message}`, { cause: error });
  } finally {
    await endPiece();
  }
  if (!headEnded) pieces.push({ ...file, recordsBefore: 0 });
  const [openQuote, last] = [scanner.open(), pieces.at(-1)];
  if (openQuote !== undefined && last) last.openQuote = openQuote;
  return pieces;
}
