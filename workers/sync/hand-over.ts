import { setTimeout as sleep } from 'node:timers/promises';
import type { LaneEntry, LaneProducer } from '../../src/queue/lanes.ts';
import { inPresentLanes } from '../../src/queue/present-lanes.ts';
import type { Pool } from '../../src/store/database.ts';
import { countLedgered } from '../../src/store/syncs/count-ledgered.ts';
import { findRefused } from '../../src/store/syncs/find-refused.ts';
import type { RowError, StagedChunk } from '../../src/store/syncs/stage-chunk.ts';

/** Milliseconds before the first look into the ledger; each further wait is half as long again. */
const FIRST_PAUSE = 2;
const LONGEST_PAUSE = 50;

/** Milliseconds after which a chunk that has not taken effect is added once more, in case the queue has lost it. */
const ADD_AGAIN = 15_000;

/** A chunk that has taken effect. */
export interface Settled {
  chunk: StagedChunk;
  /** Rows that the workers could not apply. */
  refused: RowError[];
  /** From the hand-over until then. */
  milliseconds: number;
}

/**
 * Puts a staged chunk into the lanes and waits until the ledger knows all of it. Doing it again does nothing twice:
 * the envelopes keep their ids.
 *
 * @param lanes as many as there are now; when the chunk was staged there may have been more
 * @throws {QueueUnavailable} when it may not be in the lanes; what the store reports; the reason of `abandon`
 */
export async function handOver(
  chunk: StagedChunk,
  { pool, producer, lanes }: { pool: Pool; producer: LaneProducer; lanes: number },
  abandon: AbortSignal,
): Promise<Settled> {
  const { envelopeIds, rows } = chunk;
  const entries = inPresentLanes(chunk.entries as LaneEntry[], lanes);
  const started = performance.now();
  if (envelopeIds.length > 0) {
    await producer.add(entries);
    let addedAt = started;
    for (let pause = FIRST_PAUSE; ; pause = Math.min(pause * 1.5, LONGEST_PAUSE)) {
      await sleep(pause, undefined, { signal: abandon });
      if ((await countLedgered(pool, envelopeIds)) === envelopeIds.length) break;
      if (performance.now() - addedAt < ADD_AGAIN) continue;
      await producer.add(entries);
      addedAt = performance.now();
    }
  }
  const milliseconds = performance.now() - started;
  const reasons = envelopeIds.length > 0 ? await findRefused(pool, Object.keys(rows)) : new Map();
  const refused = [...reasons].map(([id, reason]) => ({ ...rows[id]!, reason }));
  return { chunk, refused, milliseconds };
}
