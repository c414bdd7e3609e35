import { Counter, Gauge, Histogram } from 'prom-client';
import type { Source, SourceColumn, SourceRow } from '../../src/integrations/source.ts';
import type { Log } from '../../src/platform/log.ts';
import { boundLabel, createRegistry } from '../../src/processes/metrics.ts';
import type { WatchApplied } from '../../src/queue/effects.ts';
import { handOverUntilApplied, lanesOf, Outbox } from '../../src/queue/hand-over.ts';
import type { LaneProducer } from '../../src/queue/lanes.ts';
import type { Pool } from '../../src/store/database.ts';
import { expectBoundary, meetBoundary } from '../../src/store/sync-boundary.ts';
import { findRefused, type OutboxChunk } from '../../src/store/sync-chunks.ts';
import type { Run } from '../../src/store/sync-runs.ts';
import type { JobAttempts } from '../jobs/job-attempts.ts';
import { advanceCheckpoint, type Checkpoint, type Settled } from './checkpoint.ts';
import type { ChunkBuilding, Rules } from './chunk.ts';
import { fingerprintOf, tally } from './row-object.ts';
import type { Throttle } from './throttle.ts';

/** Dependencies of runs. */
export interface SyncContext {
  pool: Pool;
  producer: LaneProducer;
  applied: WatchApplied;
  /** Opens the source of a run. @throws {SourceError}, or the reason of the signal */
  open(run: Run, signal: AbortSignal): Promise<Source>;
  /** @throws {SourceError} `config` if the source lacks a column or has a forbidden one */
  checkColumns(columns: SourceColumn[], run: Run): void;
  rulesOf(run: Run): Rules;
  throttleOf(run: Run): Throttle;
  making: Omit<ChunkBuilding, 'run' | 'caller'>;
  /** Maximum rows of a run. */
  maxRows: number;
  /** Finds runs that end their process. */
  attempts: Pick<JobAttempts, 'begin'>;
  metrics: SyncMetrics;
  log: Log;
}

/** Signals to stop work on a run: after its current chunk has taken effect, or immediately. */
export interface Leaving {
  soon: AbortSignal;
  now: AbortSignal;
}

/** Adds a chunk to the lanes, waits for its effect and counts its rows. */
async function settle(
  { chunk, run }: { chunk: OutboxChunk; run: Pick<Run, 'name'> },
  { pool, producer, applied, making, metrics }: SyncContext,
  leaving: Leaving,
): Promise<Settled> {
  const { progress, entries, envelopeIds, rows } = chunk;
  const milliseconds = await handOverUntilApplied(chunk, lanesOf(producer, making.lanes), {
    ...{ applied, abandon: leaving.now, leaving: leaving.soon },
    onRetry: () => metrics.retries.inc(),
  });
  const reasons = envelopeIds.length > 0 ? await findRefused(pool, Object.keys(rows)) : new Map();
  const refused = [...reasons].map(([id, reason]) => ({ ...rows[id]!, reason }));
  const failed = progress.failed + refused.length;
  metrics.noteRows(run.name, { synced: progress.rows - failed, failed });
  if (entries.length > 0) metrics.chunkSeconds.observe(milliseconds / 1000);
  return { chunk, refused, milliseconds };
}

/** The outbox of a run, and what its last transaction has returned. */
export interface RunOutbox {
  outbox: Outbox<OutboxChunk, Settled>;
  checkpoint: Checkpoint;
  isCancelled: boolean;
}

/**
 * Creates the outbox of a run that this process works on.
 *
 * @param onProgress called when rows have taken effect
 */
export function createRunOutbox(
  { run, checkpoint, onProgress }: { run: Run; checkpoint: Checkpoint; onProgress?: () => Promise<void> },
  context: SyncContext,
  leaving: Leaving,
): RunOutbox {
  const outbox = new Outbox<OutboxChunk, Settled>({
    async store(step) {
      const { read } = own.checkpoint;
      const { checkpoint: next, cancelled } = await advanceCheckpoint(context.pool, own.checkpoint, step);
      own.checkpoint = next;
      own.isCancelled = cancelled;
      if (next.read > read) await onProgress?.();
      return !cancelled;
    },
    handOver: (chunk) => settle({ chunk, run }, context, leaving),
  });
  const own: RunOutbox = { outbox, checkpoint, isCancelled: false };
  return own;
}

/** Removes rows that were processed before. Of equal rows, as many are removed as were processed. */
type Deduplicate = (rows: SourceRow[]) => Promise<SourceRow[]>;

/**
 * Creates the deduplication for one reading of a source. Reading starts at the watermark and includes rows
 * with exactly that time, because further rows with it may have been added since. Rows without a valid time
 * are read each time. The store contains which of these rows were processed and which were met by this
 * attempt, because there may be a million of them.
 *
 * @param attempt UUID of the reading
 */
export async function createDeduplication(pool: Pool, run: Run, attempt: string): Promise<Deduplicate> {
  let left = await expectBoundary(pool, { attempt, jobId: run.id, integrationId: run.integrationId });

  return async function deduplicate(rows) {
    if (left === 0) return rows;
    const fingerprints = rows.map((row) =>
      row.updatedAt === undefined || row.updatedAt === run.watermark ? fingerprintOf(row) : undefined,
    );
    const wanted = tally(fingerprints.filter((fingerprint) => fingerprint !== undefined));
    if (wanted.size === 0) return rows;
    const processed = await meetBoundary(pool, attempt, wanted);
    return rows.filter((_, index) => {
      const fingerprint = fingerprints[index];
      const before = fingerprint === undefined ? 0 : (processed.get(fingerprint) ?? 0);
      if (before === 0) return true;
      processed.set(fingerprint!, before - 1);
      left--;
      return false;
    });
  };
}

/** Creates the metrics of one sync process. */
export function createSyncMetrics(isAlone = true) {
  const registry = createRegistry('sync', isAlone);
  const registers = [registry];
  const shownAs = boundLabel();
  const rows = new Counter({
    name: 'penstock_sync_rows_total',
    help: 'Rows of warehouses that this process has finished, by integration and outcome (synced, failed).',
    labelNames: ['integration', 'outcome'],
    registers,
  });
  const runs = new Counter({
    name: 'penstock_sync_runs_ended_total',
    help: 'Runs that this process has finished, by integration and status.',
    labelNames: ['integration', 'status'],
    registers,
  });
  let objects = 0;
  return {
    registry,
    /** Returns the number of rows that were added to the lanes since the start, without failed rows. */
    objects: () => objects,
    /** Counts the finished rows of an integration by its name. */
    noteRows(name: string, { synced, failed }: { synced: number; failed: number }): void {
      objects += synced;
      const integration = shownAs(name);
      rows.inc({ integration, outcome: 'synced' }, synced);
      rows.inc({ integration, outcome: 'failed' }, failed);
    },
    /** Counts a finished run of an integration. */
    noteRun(name: string, status: string): void {
      runs.inc({ integration: shownAs(name), status });
    },
    working: new Gauge({
      name: 'penstock_sync_runs_working',
      help: 'Runs that this process is working on.',
      registers,
    }),
    skipped: new Counter({
      name: 'penstock_sync_scheduled_skipped_total',
      help: 'Scheduled runs that were not started, by reason.',
      labelNames: ['reason'],
      registers,
    }),
    retries: new Counter({
      name: 'penstock_sync_retries_total',
      help: 'Times that a run waited because Postgres or the queue was unavailable.',
      registers,
    }),
    chunkSeconds: new Histogram({
      name: 'penstock_sync_chunk_seconds',
      help: 'Seconds from enqueuing a chunk of rows until it took effect, which is the longest delay of a live request behind it.',
      buckets: [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5],
      registers,
    }),
  };
}

export type SyncMetrics = ReturnType<typeof createSyncMetrics>;
