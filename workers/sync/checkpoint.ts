import { type OutboxStep, TakenOver } from '../../src/queue/hand-over.ts';
import type { Pool } from '../../src/store/database.ts';
import { addToBoundary, clearBoundary } from '../../src/store/sync-boundary.ts';
import {
  addToOutbox,
  insertRowErrors,
  type OutboxChunk,
  type RowError,
  removeFromOutbox,
} from '../../src/store/sync-chunks.ts';
import { advanceIntegration, advanceRun } from '../../src/store/sync-runs.ts';
import { inTransaction, sendPipelined } from '../../src/store/transactions.ts';

/** The checkpoint of a run: its progress as this process believes it is stored. */
export interface Checkpoint {
  jobId: string;
  integrationId: string;
  read: number;
  synced: number;
  failed: number;
  watermark: string | undefined;
}

/**
 * Advances a checkpoint. One transaction records the chunk that has taken effect, with counts, errors,
 * warnings, watermark and boundary, and puts the next chunk into the outbox. No other process can repeat
 * either: the transaction succeeds only if the stored number of rows is the expected one.
 *
 * @returns the new checkpoint, and whether the run has been cancelled; `next` is then not in the outbox
 * @throws {TakenOver} if the run no longer belongs to this process; nothing was changed in that case
 */
export async function advanceCheckpoint(
  pool: Pool,
  checkpoint: Checkpoint,
  { done, next }: OutboxStep<OutboxChunk, Settled>,
): Promise<{ cancelled: boolean; checkpoint: Checkpoint }> {
  const { jobId, integrationId } = checkpoint;
  const change = changeOf(done);
  const cancelled = await inTransaction(pool, async (tx) => {
    const [, cancelled, , , , , , added] = await sendPipelined(tx, [
      // First, because a deletion of the integration locks it first as well.
      () => done && change.watermark && advanceIntegration(tx, integrationId, change.watermark),
      () => advanceRun(tx, { jobId, expected: checkpoint.read, ...change }),
      () => done && removeFromOutbox(tx, jobId),
      () => change.moved && clearBoundary(tx, integrationId, false),
      () =>
        isNotEmpty(change.newest) &&
        addToBoundary(tx, integrationId, { rows: change.newest, unreadable: false }),
      () =>
        isNotEmpty(change.unreadable) &&
        addToBoundary(tx, integrationId, { rows: change.unreadable, unreadable: true }),
      () => logs(change.log) && insertRowErrors(tx, jobId, change.log),
      () => next && addToOutbox(tx, jobId, next),
    ]);
    if (cancelled === undefined) throw new TakenOver();
    if (next && !added && !cancelled) throw new TakenOver();
    return cancelled;
  });
  const { read, synced, failed, watermark } = checkpoint;
  return {
    cancelled,
    checkpoint: {
      ...{ jobId, integrationId, read: read + change.read, synced: synced + change.synced },
      ...{ failed: failed + change.failed, watermark: change.watermark ?? watermark },
    },
  };
}

function changeOf(done: Settled | undefined) {
  if (!done) {
    const nothing = { read: 0, synced: 0, failed: 0, watermark: undefined };
    return { ...nothing, log: { failed: [], warned: [] }, moved: false, newest: {}, unreadable: {} };
  }
  const {
    rows,
    errors,
    warnings = [],
    lastTimestamp: watermark,
    boundary,
    ...progress
  } = done.chunk.progress;
  const failed = progress.failed + done.refused.length;
  // A row that the workers have refused does not count as synced, and its warnings are dropped.
  const refused = new Set(done.refused.map(({ number }) => number));
  const warned = warnings.filter(({ number }) => !refused.has(number));
  const log = { failed: [...errors, ...done.refused], warned };
  return { read: rows, synced: rows - failed, failed, watermark, log, ...boundary };
}

function logs({ failed, warned }: { failed: RowError[]; warned: RowError[] }): boolean {
  return failed.length + warned.length > 0;
}

function isNotEmpty(rows: Record<string, number>): boolean {
  return Object.keys(rows).length > 0;
}

/** A chunk that has taken effect. */
export interface Settled {
  chunk: OutboxChunk;
  /** Rows that the workers could not apply. */
  refused: RowError[];
  /** Milliseconds from adding the chunk to the lanes until its effect. */
  milliseconds: number;
}
