import { type Pool, sendTogether } from '../../src/store/database.ts';
import { inTransaction } from '../../src/store/in-transaction.ts';
import { addToBoundary } from '../../src/store/syncs/add-to-boundary.ts';
import { advanceIntegration } from '../../src/store/syncs/advance-integration.ts';
import { advanceRun } from '../../src/store/syncs/advance-run.ts';
import { clearBoundary } from '../../src/store/syncs/clear-boundary.ts';
import { insertRowErrors } from '../../src/store/syncs/insert-row-errors.ts';
import { removeChunk } from '../../src/store/syncs/remove-chunk.ts';
import { type StagedChunk, stageChunk } from '../../src/store/syncs/stage-chunk.ts';
import type { Settled } from './hand-over.ts';

/** The counts of a run, as this process believes that they stand in the store. */
export interface Account {
  jobId: string;
  integrationId: string;
  read: number;
  synced: number;
  failed: number;
  lastTimestamp: string | undefined;
}

/** Another process has gone on with the run, or it is gone: nothing more may be done for it here. */
export class RunLost extends Error {
  override name = 'RunLost';
  constructor() {
    super('another process has gone on with the run, or it is gone');
  }
}

/**
 * In one transaction: settles the chunk that has taken effect, with counts, errors, timestamp and boundary, and stages
 * the next one. Nobody else can do either of them again: both stand and fall with the count of rows that were read.
 *
 * `account` moves on.
 * @returns whether `next` is staged; it is not when the run has been cancelled
 * @throws {RunLost} when the run is not this process's any more; nothing has changed then
 */
export async function turnOver(
  pool: Pool,
  account: Account,
  done: Settled | undefined,
  next: StagedChunk | undefined,
): Promise<{ cancelled: boolean }> {
  const { jobId, integrationId } = account;
  const change = changeOf(done);
  const cancelled = await inTransaction(pool, async (tx) => {
    const [, cancelled, , , , , , staged] = await sendTogether(tx, [
      // First, as whoever deletes the integration locks it first.
      () => done && change.lastTimestamp && advanceIntegration(tx, integrationId, change.lastTimestamp),
      () => advanceRun(tx, { jobId, expected: account.read, ...change }),
      () => done && removeChunk(tx, jobId),
      () => change.moved && clearBoundary(tx, integrationId, false),
      () => some(change.newest) && addToBoundary(tx, integrationId, change.newest, false),
      () => some(change.unreadable) && addToBoundary(tx, integrationId, change.unreadable, true),
      () => change.errors.length > 0 && insertRowErrors(tx, jobId, change.errors),
      () => next && stageChunk(tx, jobId, next),
    ]);
    if (cancelled === undefined) throw new RunLost();
    if (next && !staged && !cancelled) throw new RunLost();
    return cancelled;
  });
  account.read += change.read;
  account.synced += change.synced;
  account.failed += change.failed;
  account.lastTimestamp = change.lastTimestamp ?? account.lastTimestamp;
  return { cancelled };
}

function changeOf(done: Settled | undefined) {
  if (!done) {
    const nothing = { read: 0, synced: 0, failed: 0, lastTimestamp: undefined, errors: [] };
    return { ...nothing, moved: false, newest: {}, unreadable: {} };
  }
  const { rows, errors, lastTimestamp, boundary, ...progress } = done.chunk.progress;
  const failed = progress.failed + done.refused.length;
  const all = [...errors, ...done.refused];
  return { read: rows, synced: rows - failed, failed, lastTimestamp, errors: all, ...boundary };
}

function some(rows: Record<string, number>): boolean {
  return Object.keys(rows).length > 0;
}
