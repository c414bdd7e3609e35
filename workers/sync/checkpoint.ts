import { linkSignals } from '../../src/platform/time-limit.ts';
import type { WatchApplied } from '../../src/queue/effects.ts';
import { inPresentLanes } from '../../src/queue/installation.ts';
import type { LaneEntry, LaneProducer } from '../../src/queue/lanes.ts';
import { traceFlush } from '../../src/queue/spans.ts';
import type { Pool } from '../../src/store/database.ts';
import { addToBoundary, clearBoundary } from '../../src/store/sync-boundary.ts';
import {
  addToOutbox,
  findRefused,
  insertRowErrors,
  type OutboxChunk,
  type RowError,
  removeFromOutbox,
} from '../../src/store/sync-chunks.ts';
import { advanceIntegration, advanceRun } from '../../src/store/sync-runs.ts';
import { inTransaction, sendTogether } from '../../src/store/transactions.ts';

/** The checkpoint of a run: how far it has come, as this process believes that it stands in the store. */
export interface Checkpoint {
  jobId: string;
  integrationId: string;
  read: number;
  synced: number;
  failed: number;
  watermark: string | undefined;
}

/** Another process has gone on with the run, or it is gone: nothing more may be done for it here. */
export class RunLost extends Error {
  override name = 'RunLost';
  constructor() {
    super('another process has continued the run, or the run was removed');
  }
}

/** What brings a checkpoint further: the chunk that has taken effect, and the one that comes next. */
export interface CheckpointStep {
  done?: Settled | undefined;
  next?: OutboxChunk | undefined;
}

/**
 * Advances a checkpoint. In one transaction the chunk that has taken effect is settled, with counts, errors, warnings,
 * watermark and boundary, and the next one goes into the outbox. Nobody else can do either again: both stand and fall
 * with the count of rows that were read.
 *
 * @returns the checkpoint as it is then, and whether the run has been cancelled: then `next` is not in the outbox
 * @throws {RunLost} when the run is not this process's any more; nothing has changed then
 */
export async function advanceCheckpoint(
  pool: Pool,
  checkpoint: Checkpoint,
  { done, next }: CheckpointStep,
): Promise<{ cancelled: boolean; checkpoint: Checkpoint }> {
  const { jobId, integrationId } = checkpoint;
  const change = changeOf(done);
  const cancelled = await inTransaction(pool, async (tx) => {
    const [, cancelled, , , , , , added] = await sendTogether(tx, [
      // First, as whoever deletes the integration locks it first.
      () => done && change.watermark && advanceIntegration(tx, integrationId, change.watermark),
      () => advanceRun(tx, { jobId, expected: checkpoint.read, ...change }),
      () => done && removeFromOutbox(tx, jobId),
      () => change.moved && clearBoundary(tx, integrationId, false),
      () =>
        some(change.newest) && addToBoundary(tx, integrationId, { rows: change.newest, unreadable: false }),
      () =>
        some(change.unreadable) &&
        addToBoundary(tx, integrationId, { rows: change.unreadable, unreadable: true }),
      () => logs(change.log) && insertRowErrors(tx, jobId, change.log),
      () => next && addToOutbox(tx, jobId, next),
    ]);
    if (cancelled === undefined) throw new RunLost();
    if (next && !added && !cancelled) throw new RunLost();
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
  // A row that the workers have refused is not synced, whatever else there is to say of it.
  const refused = new Set(done.refused.map(({ number }) => number));
  const warned = warnings.filter(({ number }) => !refused.has(number));
  const log = { failed: [...errors, ...done.refused], warned };
  return { read: rows, synced: rows - failed, failed, watermark, log, ...boundary };
}

function logs({ failed, warned }: { failed: RowError[]; warned: RowError[] }): boolean {
  return failed.length + warned.length > 0;
}

function some(rows: Record<string, number>): boolean {
  return Object.keys(rows).length > 0;
}

/** Milliseconds after which a chunk that has not taken effect is added once more, in case the queue has lost it. */
const ADD_AGAIN = 15_000;

/** A chunk that has taken effect. */
export interface Settled {
  chunk: OutboxChunk;
  /** Rows that the workers could not apply. */
  refused: RowError[];
  /** From the hand-over until then. */
  milliseconds: number;
}

export interface HandOver {
  pool: Pool;
  producer: LaneProducer;
  applied: WatchApplied;
  lanes: number;
}

/**
 * Puts a chunk of the outbox into the lanes and waits until the ledger knows all of it. Doing it again has no second
 * effect: the envelopes keep their ids.
 *
 * @param lanes as many as there are now; when the chunk was made there may have been more
 * @throws {QueueUnavailable} when it may not be in the lanes; what the store reports; the reason of `abandon`
 */
export async function handOver(
  chunk: OutboxChunk,
  { pool, producer, applied, lanes }: HandOver,
  abandon: AbortSignal,
): Promise<Settled> {
  const { envelopeIds, rows } = chunk;
  const entries = inPresentLanes(chunk.entries as LaneEntry[], lanes);
  const started = performance.now();
  const trouble = new AbortController();
  const { signal: leaving, release } = linkSignals({ signals: [abandon, trouble.signal] });
  try {
    for (let missing: Set<string> = new Set(envelopeIds); missing.size > 0; ) {
      await traceFlush(entries, () => producer.add(entries));
      const onTrouble = (error: unknown) => trouble.abort(error);
      ({ missing } = await applied(missing, { patience: ADD_AGAIN, leaving, onTrouble }));
      leaving.throwIfAborted();
    }
  } finally {
    release();
  }
  const milliseconds = performance.now() - started;
  const reasons = envelopeIds.length > 0 ? await findRefused(pool, Object.keys(rows)) : new Map();
  const refused = [...reasons].map(([id, reason]) => ({ ...rows[id]!, reason }));
  return { chunk, refused, milliseconds };
}
