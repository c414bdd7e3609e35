import { Readable } from 'node:stream';
import { finished, pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { ZipFile } from 'yazl';

/** One file: its lines as they are made. */
export interface LinesFile {
  name: string;
  lines: AsyncIterable<string>;
}

/**
 * A ZIP archive of files that are made one after the other; nothing is kept but what is on its way. What a file fails
 * with, the archive fails with.
 */
export async function* zipped(files: AsyncIterable<LinesFile>): AsyncGenerator<Uint8Array> {
  const zip = new ZipFile();
  const out = zip.outputStream as Readable;
  let entry: Readable | undefined;
  zip.on('error', (error: Error) => out.destroy(error));

  async function add(): Promise<void> {
    for await (const { name, lines } of files) {
      if (out.destroyed) return;
      entry = Readable.from(lines, { objectMode: false });
      zip.addReadStream(entry, name, { mode: 0o100600 });
      await finished(entry, { writable: false });
    }
    zip.end();
  }

  const adding = add().catch((error: Error) => void out.destroy(error));
  try {
    yield* out as AsyncIterable<Uint8Array>;
  } finally {
    // Whoever reads no further has the lines end before the connection is let go.
    out.destroy();
    entry?.destroy();
    await adding;
  }
}

/** One file of lines, as gzip. */
export async function* gzipped(lines: AsyncIterable<string>): AsyncGenerator<Uint8Array> {
  const gzip = createGzip();
  const source = Readable.from(lines, { objectMode: false });
  const feeding = pipeline(source, gzip).catch(() => {});
  try {
    yield* gzip as AsyncIterable<Uint8Array>;
  } finally {
    gzip.destroy();
    source.destroy();
    await feeding;
  }
}
