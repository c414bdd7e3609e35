import { setTimeout as sleep } from 'node:timers/promises';
import { newId } from '../../src/ids.ts';
import { inTransaction } from '../../src/store/in-transaction.ts';
import { advanceRun } from '../../src/store/syncs/advance-run.ts';
import { clearBoundary } from '../../src/store/syncs/clear-boundary.ts';
import type { Run } from '../../src/store/syncs/find-run.ts';
import { forgetExpected } from '../../src/store/syncs/forget-expected.ts';
import { isCancelled } from '../../src/store/syncs/is-cancelled.ts';
import type { StagedChunk } from '../../src/store/syncs/stage-chunk.ts';
import { createChunkSize } from './chunk-size.ts';
import type { Leaving, SyncContext } from './context.ts';
import type { Settled } from './hand-over.ts';
import { makeChunk, type Position } from './make-chunk.ts';
import { createPassOver } from './pass-over.ts';
import { createRowReader } from './read-rows.ts';
import { settle } from './settle.ts';
import { type Account, RunLost, turnOver } from './turn-over.ts';

/** Rows of one read from the source. */
const BATCH = 500;

export type ReadOn = 'finished' | 'cancelled' | 'too many rows' | 'left';

/** What the next chunk has turned out to be; nothing of it at the end of the source. */
type Next = { chunk?: StagedChunk | undefined; error?: unknown };

/**
 * Reads a source from the run's last timestamp on, and hands its rows over chunk by chunk. One chunk is in the lanes at
 * a time, so that a live request waits behind one at most; meanwhile the next is read and judged.
 *
 * `account` moves on with what has taken effect.
 * @throws {SourceError}; {RunLost}; what the store or the queue report
 */
export async function readOn(
  run: Run,
  account: Account,
  context: SyncContext,
  leaving: Leaving,
): Promise<ReadOn> {
  const { pool, maxRows } = context;
  const rules = context.rulesOf(run);
  const ask = context.paceOf(run);
  const size = createChunkSize();
  const position: Position = { rows: account.read, failed: account.failed, newest: account.lastTimestamp };
  if (account.read === 0) await forgetUnreadable(account, context);
  const attempt = newId();
  const source = await context.open(run);
  const reading = new AbortController();
  const signal = AbortSignal.any([reading.signal, leaving.soon, leaving.now]);
  let done: Settled | undefined;
  try {
    context.checkColumns(await source.describe(), run);
    const passOver = await createPassOver(pool, run, attempt);
    const read = createRowReader(source.rowsSince(run.lastTimestamp ?? undefined, { batch: BATCH, signal }));

    const prepare = async (): Promise<Next> => {
      try {
        for (;;) {
          const rows = await read(size.now());
          if (rows.length === 0) return {};
          const fresh = await passOver(rows);
          if (fresh.length === 0) continue;
          return {
            chunk: makeChunk(fresh, position, { ...context.making, run, caller: await rules.caller() }),
          };
        }
      } catch (error) {
        return { error };
      }
    };

    /** Until the chunk may be handed over; what has taken effect is settled before a wait. */
    const waitForTurn = async ({ progress }: StagedChunk): Promise<void> => {
      for (;;) {
        const milliseconds = await ask(progress.rows, await rules.limit());
        if (milliseconds === 0 || leaving.soon.aborted) return;
        if (done) await turnOver(pool, account, done, undefined);
        done = undefined;
        await sleep(milliseconds, undefined, { signal: leaving.soon }).catch(() => {});
        if (await isCancelled(pool, run.id)) return;
      }
    };

    for (let ahead = prepare(); ; ) {
      const { chunk, error } = await unlessAborted(ahead, leaving.soon);
      if (chunk) await waitForTurn(chunk);
      const full =
        chunk !== undefined &&
        account.read + (done?.chunk.progress.rows ?? 0) + chunk.progress.rows > maxRows;
      // A source that is told to stop may look like one that is at its end.
      const leave = leaving.soon.aborted;
      const staged = full || leave ? undefined : chunk;
      const { cancelled } = await turnOver(pool, account, done, staged);
      done = undefined;
      if (cancelled) return 'cancelled';
      if (leave) return 'left';
      if (error) throw error;
      if (full) return 'too many rows';
      if (!staged) return 'finished';
      ahead = prepare();
      done = await settle(staged, context, leaving.now);
      if (staged.entries.length > 0) size.learn(staged.progress.rows, done.milliseconds);
    }
  } finally {
    reading.abort();
    await source.close().catch((error) => context.log.warn({ err: error }, 'a source did not close'));
    await forgetExpected(pool, attempt).catch(() => {});
  }
}

/** Rows without a readable time are counted once in a run, and again in the next one. */
async function forgetUnreadable({ jobId, integrationId }: Account, { pool }: SyncContext): Promise<void> {
  await inTransaction(pool, async (tx) => {
    const nothing = { read: 0, synced: 0, failed: 0, lastTimestamp: undefined };
    if ((await advanceRun(tx, { jobId, expected: 0, ...nothing })) === undefined) throw new RunLost();
    await clearBoundary(tx, integrationId, true);
  });
}

/** What the work gives, or nothing as soon as the signal comes; the work goes on and is heard by nobody. */
function unlessAborted(work: Promise<Next>, signal: AbortSignal): Promise<Next> {
  if (signal.aborted) return Promise.resolve({});
  return new Promise((resolve) => {
    const leave = () => resolve({});
    signal.addEventListener('abort', leave, { once: true });
    void work.then((next) => {
      signal.removeEventListener('abort', leave);
      resolve(next);
    });
  });
}
