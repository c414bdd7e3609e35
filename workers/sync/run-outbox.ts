import type { WatchApplied } from '../../src/queue/effects.ts';
import { handOverUntilApplied, Outbox, type TargetLanes } from '../../src/queue/hand-over.ts';
import type { Pool } from '../../src/store/database.ts';
import { findRefused, type OutboxChunk } from '../../src/store/sync-chunks.ts';
import type { Run } from '../../src/store/sync-runs.ts';
import { advanceCheckpoint, type Checkpoint, type Settled } from './checkpoint.ts';
import type { SyncMetrics } from './metrics.ts';

/** Signals to stop work on a run: after its current chunk has taken effect, or immediately. */
export interface Leaving {
  soon: AbortSignal;
  now: AbortSignal;
}

/** A run and the position from which this process works on it. */
export interface RunInHand {
  run: Run;
  checkpoint: Checkpoint;
  /** Called when rows have taken effect. */
  onProgress?: () => Promise<void>;
}

/** The outbox of a run, and the result of its last transaction. */
interface RunOutbox {
  outbox: Outbox<OutboxChunk, Settled>;
  checkpoint: Checkpoint;
  isCancelled: boolean;
}

/** Opens the outboxes of runs. Their chunks go to the lanes. */
export class RunOutboxes {
  readonly #pool: Pool;
  readonly #lanes: TargetLanes;
  readonly #applied: WatchApplied;
  readonly #metrics: Pick<SyncMetrics, 'retries' | 'noteRows' | 'chunkSeconds'>;

  constructor(parts: {
    pool: Pool;
    lanes: TargetLanes;
    applied: WatchApplied;
    metrics: Pick<SyncMetrics, 'retries' | 'noteRows' | 'chunkSeconds'>;
  }) {
    this.#pool = parts.pool;
    this.#lanes = parts.lanes;
    this.#applied = parts.applied;
    this.#metrics = parts.metrics;
  }

  /** Opens the outbox of a run that this process works on. */
  open({ run, checkpoint, onProgress }: RunInHand, leaving: Leaving): RunOutbox {
    const outbox = new Outbox<OutboxChunk, Settled>({
      store: async (step) => {
        const { read } = own.checkpoint;
        const { checkpoint: next, cancelled } = await advanceCheckpoint(this.#pool, own.checkpoint, step);
        own.checkpoint = next;
        own.isCancelled = cancelled;
        if (next.read > read) await onProgress?.();
        return !cancelled;
      },
      handOver: (chunk) => this.#settle(chunk, run.name, leaving),
    });
    const own: RunOutbox = { outbox, checkpoint, isCancelled: false };
    return own;
  }

  /** Adds a chunk to the lanes, waits for its effect and counts its rows. */
  async #settle(chunk: OutboxChunk, runName: string, leaving: Leaving): Promise<Settled> {
    const { progress, entries, envelopeIds, rows } = chunk;
    const milliseconds = await handOverUntilApplied(chunk, this.#lanes, {
      ...{ applied: this.#applied, abandon: leaving.now, leaving: leaving.soon },
      onRetry: () => this.#metrics.retries.inc(),
    });
    const reasons = envelopeIds.length > 0 ? await findRefused(this.#pool, Object.keys(rows)) : new Map();
    const refused = [...reasons].map(([id, reason]) => ({ ...rows[id]!, reason }));
    const failed = progress.failed + refused.length;
    this.#metrics.noteRows(runName, { synced: progress.rows - failed, failed });
    if (entries.length > 0) this.#metrics.chunkSeconds.observe(milliseconds / 1000);
    return { chunk, refused, milliseconds };
  }
}
