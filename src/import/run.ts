import { newId } from '../platform/ids.ts';
import { handOver, lanesOf, Outbox, type Packing, packStaged, TakenOver } from '../queue/hand-over.ts';
import { type LaneProducer, QueueUnavailable } from '../queue/lanes.ts';
import type { Pool } from '../store/database.ts';
import { finishImport, type ImportProgress, type StoredImport, stageEnvelopes } from '../store/imports.ts';
import type { StagedEnvelopes } from '../store/staged-envelopes.ts';
import type { RefusedRows } from './refused-rows.ts';
import { type createCallers, type MappedRow, type RowValidator, validateRows } from './rows.ts';
import { ImportError } from './unpack.ts';
import type { Yielding } from './yielding.ts';

/** Maximum characters of a chunk, unless a single row has more. The outbox and a flush accept this size. */
const MAX_CHUNK_CHARACTERS = 2_097_152;

interface ImportOptions extends Packing {
  pool: Pool;
  producer: LaneProducer;
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
  staged: StagedEnvelopes;
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
  const { pool, producer, lanes, refusedRows, yielding, onProgress, leaving } = importing;
  let progress: ImportProgress = progressOf(stored);
  let warned = 0;
  const outbox = new Outbox<Chunk, unknown>({
    async store({ next = { progress, staged: EMPTY } }) {
      const step = { expected: progress.rows, ...next };
      if (!(await stageEnvelopes(pool, stored, step))) throw new TakenOver();
      progress = next.progress;
      return true;
    },
    handOver: ({ staged }) => handOver(staged.entries, lanesOf(producer, lanes), { leaving }),
  });

  try {
    if (stored.staged) outbox.resume({ progress, staged: { ...EMPTY, entries: stored.staged } });
    await outbox.handedOver();
    await refusedRows.resume(progress.refusedBytes);
    const isLeft = await takeAll();
    await outbox.handedOver();
    if (isLeft) await outbox.advance();
    else if (!(await finishImport(pool, stored, progress.rows))) throw new TakenOver();
    return { ...progress, end: isLeft ? 'left' : 'finished', warned };
  } catch (error) {
    // Removes envelopes that the lanes have, because they contain personal data. Others stay in the outbox.
    await outbox.advance().catch(() => {});
    throw importErrorOf(error, stored.file);
  }

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
      await outbox.advance({
        progress: next,
        staged: packStaged({ request, objects, bytes: size }, importing),
      });
      onProgress(progress);
      yielding.worked(performance.now() - started);
    }
    return false;
  }
}

function progressOf({ rows, accepted, refused, refusedBytes }: ImportProgress): ImportProgress {
  return { rows, accepted, refused, refusedBytes };
}

const EMPTY: StagedEnvelopes = { entries: [], envelopeIds: [] };

/** Returns the error with which an import ends, so that the operator knows what to do. */
function importErrorOf(error: unknown, file: string): unknown {
  if (error instanceof TakenOver)
    return new ImportError(`${file}: another process has taken over this import`, { cause: error });
  if (!(error instanceof QueueUnavailable)) return error;
  const why = ((error.cause as Error | undefined) ?? error).message;
  return new ImportError(`the queue did not accept the rows (${why}); run the same command again to resume`, {
    cause: error,
  });
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
