import type { StagedChunk } from '../../src/store/syncs/stage-chunk.ts';
import type { SyncContext } from './context.ts';
import { handOver, type Settled } from './hand-over.ts';

/** Hands a chunk over, waits for its effect and counts it. */
export async function settle(
  chunk: StagedChunk,
  context: SyncContext,
  abandon: AbortSignal,
): Promise<Settled> {
  const settled = await handOver(chunk, { ...context, lanes: context.making.lanes }, abandon);
  const { progress, entries } = chunk;
  const failed = progress.failed + settled.refused.length;
  context.metrics.rows.inc({ outcome: 'synced' }, progress.rows - failed);
  context.metrics.rows.inc({ outcome: 'failed' }, failed);
  if (entries.length > 0) context.metrics.chunkSeconds.observe(settled.milliseconds / 1000);
  return settled;
}
