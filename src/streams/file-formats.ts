import { createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import { inWords } from '../object-store/folder-store.ts';
import { type ParquetColumn, type ParquetRow, writeParquet } from '../object-store/parquet.ts';
import { createSemaphore } from '../platform/semaphore.ts';
import { DeliveryError, type Piece } from './destination.ts';
import type { StreamFormat } from './file-places.ts';

export interface Writing {
  /** On a local disk; there must be none. */
  file: string;
  /** Wire name of the service id. */
  serviceIdField: string;
  signal: AbortSignal;
}

type Write = (pieces: AsyncIterable<Piece>, writing: Writing) => Promise<void>;

/** A line an envelope. */
const writeLines: Write = async (pieces, { file, signal }) => {
  async function* lines(): AsyncGenerator<string> {
    for await (const { envelopes } of pieces) if (envelopes.length > 0) yield `${envelopes.join('\n')}\n`;
  }
  const writing = pipeline(lines(), createGzip(), createWriteStream(file, { flags: 'wx', mode: 0o600 }), {
    signal,
  });
  await inWords(writing, { name: file, doing: 'written' });
};

/** DuckDB may take much memory for a moment: one file at a time is written by a process. */
const oneAtATime = createSemaphore({
  ...{ atOnce: 1, atOnceOfOne: 1, mostWaiting: 1000, mostWaitingOfOne: 1000, patience: 600_000 },
  refusal: () => new DeliveryError('too many Parquet files are to be written at once'),
});

/** A row a message; `data` is JSON. */
const writeRows: Write = (pieces, { file, serviceIdField, signal }) => {
  const columns: ParquetColumn[] = [
    { name: 'id', type: 'uuid' },
    { name: 'type', type: 'text' },
    { name: 'time', type: 'timestamp' },
    { name: 'workspace_id', type: 'uuid' },
    { name: serviceIdField, type: 'text' },
    { name: 'external_id', type: 'text' },
    { name: 'data', type: 'json' },
  ];
  async function* rows(): AsyncGenerator<ParquetRow> {
    for await (const { messages } of pieces)
      for (const { id, type, time, workspaceId, user, data } of messages)
        yield {
          ...{ id, type, time, workspace_id: workspaceId, data },
          [serviceIdField]: user?.service_id,
          external_id: user?.external_id,
        };
  }
  return oneAtATime.use(file, async () => {
    signal.throwIfAborted();
    await writeParquet(rows(), { file, columns, signal });
  });
};

export const writers: Record<StreamFormat, Write> = { ndjson: writeLines, parquet: writeRows };
