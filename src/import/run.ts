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
import { type createCallers, type Judge, judgeRows, type MappedRow } from './rows.ts';
import { ImportError } from './unpack.ts';
import type { Yielding } from './yielding.ts';

/** Characters of a chunk, unless one row has more: what the outbox and a flush take at a time. */
const MOST_CHARACTERS = 2_097_152;

/** Milliseconds for which a queue that does not answer is tried again. */
const PATIENCE_MS = 60_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2000;

export interface Importing {
  pool: Pool;
  producer: LaneProducer;
  lanes: number;
  maxEnvelopeObjects: number;
  judge: Judge;
  callerOf: ReturnType<typeof createCallers>;
  refusedRows: RefusedRows;
  yielding: Yielding;
  /** Hears of each step, when it is written down. */
  onProgress(progress: ImportProgress): void;
  /** Ends the import behind the rows that are in hand. */
  leaving: AbortSignal;
}

/** How an import has ended; `left`: it was told to stop, and can be gone on with. */
export interface ImportEnd extends ImportProgress {
  end: 'finished' | 'left';
  /** Rows of this run of which something was cut or left out. */
  warned: number;
}

/** What goes to the lanes at once. */
interface Chunk {
  progress: ImportProgress;
  staged: StagedEnvelopes & { entries: LaneEntry[] };
}

/**
 * Brings the rows of a file into the lanes, chunk after chunk, in their order. Each chunk is written into the outbox
 * together with how far the import has come, and then added to the lanes. Whoever goes on hands over what the outbox
 * has, by the same ids, which lanes and ledger know: a row has its effect once.
 *
 * @param stored where it stands
 * @param rows of the file, behind those that are done with
 * @throws {ImportError} when it cannot go on; it can be run again
 */
export async function runImport(
  stored: StoredImport,
  rows: AsyncIterable<MappedRow[]>,
  importing: Importing,
): Promise<ImportEnd> {
  const { pool, refusedRows, yielding, onProgress, leaving, lanes } = importing;
  let progress: ImportProgress = progressOf(stored);
  let warned = 0;
  let adding = stored.staged
    ? addToLanes(inPresentLanes(stored.staged as LaneEntry[], lanes), importing)
    : undefined;
  await adding;
  await refusedRows.goOn(progress.refusedBytes);

  async function take(chunk: Chunk): Promise<void> {
    // Of the one before, the lanes have all: its place in the outbox is free.
    await adding;
    const { progress: next, staged } = chunk;
    if (!(await stageEnvelopes(pool, stored, { expected: progress.rows, progress: next, staged })))
      throw taken(stored);
    progress = next;
    onProgress(progress);
    adding = addToLanes(staged.entries, importing);
    // Its failure is heard by whoever comes next, or at the end.
    adding.catch(() => {});
  }

  /** What the lanes have by now need not lie in the outbox, which holds what people are called. */
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
  if (!(await finishImport(pool, stored, progress.rows))) throw taken(stored);
  return { ...progress, end: 'finished', warned };

  /** Resolves to whether it was told to stop before the end. */
  async function takeAll(): Promise<boolean> {
    for await (const batch of cut(rows, yielding.chunkRows)) {
      await yielding.wait(leaving);
      if (leaving.aborted) return true;
      const started = performance.now();
      const caller = await importing.callerOf(newId());
      const judged = judgeRows(batch, importing.judge, caller);
      warned += judged.warned;
      // Before the rows count as done with.
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

function taken({ file }: StoredImport & ImportKey): ImportError {
  return new ImportError(`${file}: another process has taken over this import`);
}

interface Request {
  request: { request_id: string; workspace_id: string; accepted_at: string };
  size: number;
}

function packed(
  objects: AcceptedObject[],
  { request, size }: Request,
  { lanes, maxEnvelopeObjects }: Importing,
): Chunk['staged'] {
  if (objects.length === 0) return { entries: [], envelopeIds: [] };
  const entries = pack([{ request, objects, bytes: size }], lanes, maxEnvelopeObjects);
  // The ledger knows a fence by its first lane's envelope alone.
  return { entries, envelopeIds: [...new Set(entries.map(({ id, envelope }) => envelope.fence?.id ?? id))] };
}

/** Chunks of at most so many rows, as it is asked for at the time, or so many characters. */
async function* cut(batches: AsyncIterable<MappedRow[]>, most: () => number): AsyncGenerator<MappedRow[]> {
  let chunk: MappedRow[] = [];
  let characters = 0;
  for await (const batch of batches) {
    for (const row of batch) {
      if (chunk.length > 0 && (chunk.length >= most() || characters + row.text.length > MOST_CHARACTERS)) {
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

/** Adds the same entries until the queue has them: a second time has no second effect. @throws {ImportError} */
async function addToLanes(entries: LaneEntry[], { producer, leaving }: Importing): Promise<void> {
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
    ...{ every: backOff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS), deadline: Date.now() + PATIENCE_MS, leaving },
    isSo: (failure) => failure === undefined,
  });
  if (cause === undefined) return;
  const why = ((cause.cause as Error | undefined) ?? cause).message;
  throw new ImportError(`the queue did not accept the rows (${why}); run the same command again to resume`, {
    cause,
  });
}
