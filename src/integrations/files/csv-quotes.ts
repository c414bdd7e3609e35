import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { SourceError } from '../source.ts';
import type { CsvHeader } from './csv-header.ts';
import type { InputFile } from './input-files.ts';

const QUOTE = 0x22;
const CR = 0x0d;
const LF = 0x0a;
const SPACE = 0x20;

/**
 * Whether a quote is open at the end of a CSV file: what stands behind it is one value then, however many lines it was
 * meant to be, and DuckDB drops such a value without a word.
 * @returns the byte at which the quote opens, or undefined when none is open
 */
export async function findOpenQuote(
  file: InputFile,
  { delimiter }: CsvHeader,
  signal?: AbortSignal,
): Promise<number | undefined> {
  const separator = delimiter.charCodeAt(0);
  let passed = 0;
  let openedAt: number | undefined;
  /** The last byte is a quote within quotes: it closes them, unless a second one follows. */
  let pending = false;
  /** Of a broken value, the line is given up. */
  let skipping = false;
  /** Last byte but for spaces, which may stand around quotes. */
  let last = LF;

  function look(chunk: Buffer): void {
    let at = 0;
    while (at < chunk.length) {
      if (pending) {
        const next = chunk[at]!;
        if (next === SPACE) at += 1;
        else if (next === QUOTE) {
          pending = false;
          at += 1;
        } else {
          pending = false;
          openedAt = undefined;
          skipping = next !== separator && next !== LF && next !== CR;
        }
        continue;
      }
      const found = chunk.indexOf(skipping ? LF : QUOTE, at);
      if (found === -1) break;
      if (skipping) skipping = false;
      else if (openedAt !== undefined) pending = true;
      else {
        const before = lastBut(SPACE, chunk.subarray(0, found)) ?? last;
        // Anywhere else in a value without quotes it is a character as any other.
        if (before === separator || before === LF || before === CR) openedAt = passed + found;
      }
      at = found + 1;
    }
    last = lastBut(SPACE, chunk) ?? last;
    passed += chunk.length;
  }

  async function lookAtAll(source: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of source) look(chunk);
  }
  const read = createReadStream(file.path);
  const options = signal ? { signal } : {};
  try {
    await (file.path.endsWith('.gz')
      ? pipeline(read, createGunzip(), lookAtAll, options)
      : pipeline(read, lookAtAll, options));
  } catch (error) {
    signal?.throwIfAborted();
    throw new SourceError('failed', `${file.name}: ${(error as Error).message}`, { cause: error });
  }
  return pending ? undefined : openedAt;
}

function lastBut(byte: number, bytes: Buffer): number | undefined {
  let at = bytes.length - 1;
  while (at >= 0 && bytes[at] === byte) at -= 1;
  return bytes[at];
}
