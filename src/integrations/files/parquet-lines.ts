import { realpath } from 'node:fs/promises';
import path from 'node:path';
import { refuseBrotli } from './parquet.ts';
import { literal, openDuckDb, toSourceError } from './part.ts';
import { createScratch } from './scratch.ts';

/** A Parquet file as lines of JSON, an object for each row, in their order. */
export interface ParquetLines {
  rows: number;
  lines(onRows: (rows: number) => void): AsyncGenerator<Buffer>;
  close(): Promise<void>;
}

/**
 * @param name as the person knows it
 * @param scratchBytes of disk that reading may take
 * @throws {SourceError} when it is no Parquet file, or one that is not read
 */
export async function openParquet(file: string, name: string, scratchBytes: number): Promise<ParquetLines> {
  const real = await realpath(file);
  const inputs = [{ name, path: real }];
  const scratch = await createScratch(scratchBytes);
  // The file is read where it lies: its folder is all that a statement may reach.
  const duckDb = await openDuckDb({ ...scratch, inputs: path.dirname(real) }, { keepsOrder: true });
  const from = `read_parquet(${literal(real)}, binary_as_string = true)`;
  async function close(): Promise<void> {
    duckDb.close();
    await scratch.remove();
  }
  try {
    const connection = await duckDb.connect();
    await refuseBrotli(connection, inputs[0]!);
    const counted = await connection.runAndReadAll(`select count(*)::varchar from ${from}`);
    connection.closeSync();
    return { rows: Number(counted.getRows()[0]![0]), lines, close };
  } catch (error) {
    await close();
    throw toSourceError(error, inputs);
  }

  async function* lines(onRows: (rows: number) => void): AsyncGenerator<Buffer> {
    const connection = await duckDb.connect();
    try {
      const result = await connection.stream(`select to_json(one)::varchar from ${from} as one`);
      for (let chunk = await result.fetchChunk(); chunk?.rowCount; chunk = await result.fetchChunk()) {
        const texts = chunk.getColumnValues(0) as string[];
        onRows(texts.length);
        yield Buffer.from(`${texts.join('\n')}\n`);
      }
    } catch (error) {
      throw toSourceError(error, inputs);
    } finally {
      connection.closeSync();
    }
  }
}
