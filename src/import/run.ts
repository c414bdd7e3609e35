import type { AcceptedObject } from '../jobs/envelope.ts';
import { newId } from '../platform/ids.ts';
import { backOff, until } from '../platform/poll.ts';
import { inPresentLanes } from '../queue/installation.ts';
import { type LaneEntry, type LaneProducer, QueueUnavailable } from '../queue/lanes.ts';
import { pack } from '../queue/pack.ts';
import type { Pool } from '../store/database.ts';
import {
  finishImport,
  type ImportKey,
  type ImportProgress,
  type StagedEnvelopes,
  type StoredImport,
  stageEnvelopes,
} from '../store/imports.ts';
import type { RefusedRows } from './refused-rows.ts';
import { type createCallers, type MappedRow, type RowValidator, validateRows } from './rows.ts';
import { ImportError } from './unpack.ts';
import type { Yielding } from './yielding.ts';

/** Maximum characters of a chunk, unless a single row has more. The outbox and a flush accept this size. */
const MAX_CHUNK_CHARACTERS = 2_097_152;

/** Milliseconds for which an unavailable queue is retried. */
const QUEUE_TIMEOUT_MS = 60_000;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2000;

interface ImportOptions {
  pool: Pool;
  producer: LaneProducer;
  lanes: number;
  maxEnvelopeObjects: number;
  judge: RowValidator;
  callerOf: ReturnType<typeof createCallers>;
  refusedRows: RefusedRows;
  yielding: Yielding;
  /** Called after each chunk has been recorded. */
  onProgress(progress: ImportProgress): void;
  /** Ends the import after the current rows. */
  leaving: AbortSignal;
}

/** How an import has ended. `left` means that it was asked to stop and can be resumed. */
export interface ImportEnd extends ImportProgress {
  end: 'finished' | 'left';
  /** Number of rows of this run of which a value was truncated or omitted. */
  warned: number;
}

/** Envelopes that are added to the lanes together. */
interface Chunk {
  progress: ImportProgress;
  staged: StagedEnvelopes & { entries: LaneEntry[] };
}

/**
 * Adds the rows of a file to the lanes in chunks, in order. Each chunk is written to the outbox in the same
 * transaction as the progress of the import, and then added to the lanes. A resumed import adds the envelopes
 * in the outbox again with the same ids, which lanes and ledger recognize, so each row has its effect once.
 *
 * @param stored state of the import
 * @param rows rows of the file after the rows that are already processed
 * @throws {ImportError} if the import cannot continue; it can be run again
 */
export async function runImport(
  stored: StoredImport,
  rows: AsyncIterable<MappedRow[]>,
  importing: ImportOptions,
): Promise<ImportEnd> {
  const { pool, refusedRows, yielding, onProgress, leaving, lanes } = importing;
  let progress: ImportProgress = progressOf(stored);
  let warned = 0;
  let adding = stored.staged
    ? addToLanes(inPresentLanes(stored.staged as LaneEntry[], lanes), importing)
    : undefined;
  await adding;
  await refusedRows.resume(progress.refusedBytes);

  async function take(chunk: Chunk): Promise<void> {
    // Wait until the lanes have the previous chunk, because this one replaces it in the outbox.
    await adding;
    const { progress: next, staged } = chunk;
    if (!(await stageEnvelopes(pool, stored, { expected: progress.rows, progress: next, staged })))
      throw takenOver(stored);
    progress = next;
    onProgress(progress);
    adding = addToLanes(staged.entries, importing);
    // The next chunk, or the end of the import, awaits `adding` and gets its error.
    adding.catch(() => {});
  }

  /** Removes envelopes that the lanes have from the outbox, because they contain personal data. */
  async function clear(): Promise<void> {
    await adding;
    const staged = { entries: [], envelopeIds: [] };
    await stageEnvelopes(pool, stored, { expected: progress.rows, progress, staged });
  }

  let isLeft: boolean;
  try {
    isLeft = await takeAll();
  } catch (error) {
    await clear().catch(() => {});
    throw error;
  }
  await adding;
  if (isLeft) {
    await clear();
    return { ...progress, end: 'left', warned };
  }
  if (!(await finishImport(pool, stored, progress.rows))) throw takenOver(stored);
  return { ...progress, end: 'finished', warned };

  /** Resolves to whether the import was asked to stop before the end. */
  async function takeAll(): Promise<boolean> {
    for await (const batch of toChunks(rows, yielding.chunkRows)) {
      await yielding.wait(leaving);
      if (leaving.aborted) return true;
      const started = performance.now();
      const caller = await importing.callerOf(newId());
      const judged = validateRows(batch, importing.judge, caller);
      warned += judged.warned;
      // Store refused rows before the progress counts them as processed.
      await refusedRows.write(judged.refused);
      const { objects, refused, size } = judged;
      const next = {
        rows: progress.rows + batch.length,
        accepted: progress.accepted + objects.length,
        refused: progress.refused + refused.length,
        refusedBytes: refusedRows.bytes(),
      };
      const request = {
        request_id: caller.requestId,
        workspace_id: stored.workspaceId,
        accepted_at: new Date(caller.now).toISOString(),
      };
      await take({ progress: next, staged: packed(objects, { request, size }, importing) });
      yielding.worked(performance.now() - started);
    }
    return false;
  }
}

function progressOf({ rows, accepted, refused, refusedBytes }: ImportProgress): ImportProgress {
  return { rows, accepted, refused, refusedBytes };
}

function takenOver({ file }: StoredImport & ImportKey): ImportError {
  return new ImportError(`${file}: another process has taken over this import`);
}

interface Request {
  request: { request_id: string; workspace_id: string; accepted_at: string };
  size: number;
}

function packed(
  objects: AcceptedObject[],
  { request, size }: Request,
  { lanes, maxEnvelopeObjects }: ImportOptions,
): Chunk['staged'] {
  if (objects.length === 0) return { entries: [], envelopeIds: [] };
  const entries = pack([{ request, objects, bytes: size }], lanes, maxEnvelopeObjects);
  // The ledger identifies a fence by the envelope of its first lane only.
  return { entries, envelopeIds: [...new Set(entries.map(({ id, envelope }) => envelope.fence?.id ?? id))] };
}

/**
 * Splits rows into chunks with a maximum number of rows, which may change over time, and a maximum number of
 * characters.
 */
async function* toChunks(
  batches: AsyncIterable<MappedRow[]>,
  maxRows: () => number,
): AsyncGenerator<MappedRow[]> {
  let chunk: MappedRow[] = [];
  let characters = 0;
  for await (const batch of batches) {
    for (const row of batch) {
      if (
        chunk.length > 0 &&
        (chunk.length >= maxRows() || characters + row.text.length > MAX_CHUNK_CHARACTERS)
      ) {
        yield chunk;
        chunk = [];
        characters = 0;
      }
      chunk.push(row);
      characters += row.text.length;
    }
  }
  if (chunk.length > 0) yield chunk;
}

/**
 * Adds entries and retries until the queue has accepted them. Adding an entry twice has no second effect.
 * @throws {ImportError}
 */
async function addToLanes(entries: LaneEntry[], { producer, leaving }: ImportOptions): Promise<void> {
  if (entries.length === 0) return;
  const add = () =>
    producer.add(entries).then(
      () => undefined,
      (error: unknown) => {
        if (error instanceof QueueUnavailable) return error;
        throw error;
      },
    );
  const cause = await until(add, {
    ...{ every: backOff(FIRST_PAUSE_MS, MAX_PAUSE_MS), deadline: Date.now() + QUEUE_TIMEOUT_MS, leaving },
    isSo: (failure) => failure === undefined,
  });
  if (cause === undefined) return;
  const why = ((cause.cause as Error | undefined) ?? cause).message;
  throw new ImportError(`the queue did not accept the rows (${why}); run the same command again to resume`, {
    cause,
  });
}
