import { createReadStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import { SourceError } from '../source.ts';
import type { InputFile } from './input-files.ts';

/** A header that is longer is no header. */
const MOST_BYTES = 65_536;
const DELIMITERS = [',', ';', '\t', '|'];

export interface CsvHeader {
  delimiter: string;
  names: string[];
}

/**
 * The first line of a CSV file. Of comma, semicolon, tab and bar, the delimiter is the one that makes one of the names
 * UPDATED_AT: payloads are full of all of them, so that nothing else tells.
 * @returns undefined for an empty file
 * @throws {SourceError} `config` when no line ends within 64 KiB, or the file is no text
 */
export async function readHeader(file: InputFile): Promise<CsvHeader | undefined> {
  const start = await readStart(file);
  if (start.length === 0) return undefined;
  // The mark at the beginning of a file goes with it. The bytes may end within a character, but no name does.
  const text = new TextDecoder('utf-8').decode(start);
  const headers = DELIMITERS.map((delimiter) => ({ delimiter, names: parseLine(text, delimiter) }));
  const found =
    headers.find(({ names }) => names?.some((name) => name.toLowerCase() === 'updated_at')) ?? headers[0]!;
  const { delimiter, names } = found;
  if (names?.some((name) => name.includes('\ufffd'))) {
    throw new SourceError('config', `${file.name}: the first line is not in UTF-8`);
  }
  if (names) return { delimiter, names };
  if (start.length < MOST_BYTES) return { delimiter, names: parseLine(`${text}\n`, delimiter) ?? [] };
  throw new SourceError('config', `${file.name}: no first line ends within ${MOST_BYTES} bytes`);
}

async function readStart(file: InputFile): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  const read = createReadStream(file.path, file.path.endsWith('.gz') ? {} : { end: MOST_BYTES - 1 });
  const enough = new AbortController();
  async function keep(source: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of source) {
      chunks.push(chunk);
      bytes += chunk.length;
      if (bytes >= MOST_BYTES) enough.abort();
    }
  }
  try {
    await (file.path.endsWith('.gz')
      ? pipeline(read, createGunzip(), keep, { signal: enough.signal })
      : pipeline(read, keep));
  } catch (error) {
    if (!enough.signal.aborted) {
      throw new SourceError('config', `${file.name} cannot be read: ${(error as Error).message}`, {
        cause: error,
      });
    }
  }
  return Buffer.concat(chunks).subarray(0, MOST_BYTES);
}

/** Names of the line, quoted or not; undefined when the line does not end. */
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
