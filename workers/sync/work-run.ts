import { findChunk } from '../../src/store/syncs/find-chunk.ts';
import { findRun, type Run } from '../../src/store/syncs/find-run.ts';
import type { Leaving, SyncContext } from './context.ts';
import { type ReadOn, readOn } from './read-on.ts';
import { settle } from './settle.ts';
import { type Account, RunLost, turnOver } from './turn-over.ts';

/**
 * How work on a run ended. `left`: somebody goes on with it; `lost`: somebody has, or it is gone; `failed`: the run
 * stands where the account says, and can be gone on with.
 */
export type Worked =
  | { kind: ReadOn | 'cancelled'; account: Account }
  | { kind: 'failed'; error: unknown; account: Account | undefined }
  | { kind: 'left' }
  | { kind: 'lost' };

/** Goes on with a run from where it stands, to the end of its source if nothing comes between. */
export async function workRun(jobId: string, context: SyncContext, leaving: Leaving): Promise<Worked> {
  let account: Account | undefined;
  try {
    const run = await settleLeftOver(jobId, context, leaving.now);
    if (!run) return { kind: 'lost' };
    account = accountOf(run);
    if (run.cancelled) return { kind: 'cancelled', account };
    const kind = await readOn(run, account, context, leaving);
    return kind === 'left' ? { kind } : { kind, account };
  } catch (error) {
    if (error instanceof RunLost) return { kind: 'lost' };
    if (leaving.now.aborted) return { kind: 'left' };
    return { kind: 'failed', error, account };
  }
}

/** A chunk that was staged by whoever worked the run before is handed over, once more perhaps, before all else. */
async function settleLeftOver(
  jobId: string,
  context: SyncContext,
  abandon: AbortSignal,
): Promise<Run | undefined> {
  const { pool } = context;
  const run = await findRun(pool, jobId);
  const chunk = run && (await findChunk(pool, jobId));
  if (!chunk) return run;
  await turnOver(pool, accountOf(run), await settle(chunk, context, abandon), undefined);
  return findRun(pool, jobId);
}

function accountOf(run: Run): Account {
  return {
    jobId: run.id,
    integrationId: run.integrationId,
    read: run.rowsRead,
    synced: run.rowsSynced,
    failed: run.rowsFailed,
    lastTimestamp: run.lastTimestamp ?? undefined,
  };
}
