import { rest } from '../platform/poll.ts';
import type { Pool } from '../store/database.ts';
import {
  beginErasurePass,
  eraseFromLog,
  isErasureWaiting,
  selectErasingWorkspaces,
} from '../store/stream-erasures.ts';

/** Seconds that the first deleted user waits, so that one pass erases the entries of many users. */
const ERASE_LOG_AFTER_SECONDS = 1800;

/** Rows of the log per transaction, each with up to a few hundred entries. */
const SLICE = 100;

/** Milliseconds between two checks whether another process has finished its pass. */
const POLL_INTERVAL_MS = 100;

/** Runs a pass over the log of each workspace in which the oldest deleted user has waited for `waitedSeconds`. */
export async function eraseDeletedFromLogs(
  pool: Pool,
  {
    waitedSeconds = ERASE_LOG_AFTER_SECONDS,
    leaving,
  }: { waitedSeconds?: number; leaving?: AbortSignal } = {},
): Promise<void> {
  for (const id of await selectErasingWorkspaces(pool)) await runPass(pool, id, { waitedSeconds, leaving });
}

/** Erases all deleted users of a workspace from its log, and waits while another process runs the pass. */
export async function eraseDeletedFromLog(pool: Pool, workspaceId: string): Promise<void> {
  while (await isErasureWaiting(pool, workspaceId)) {
    await runPass(pool, workspaceId, { waitedSeconds: 0 });
    if (await isErasureWaiting(pool, workspaceId)) await rest(POLL_INTERVAL_MS);
  }
}

async function runPass(
  pool: Pool,
  workspaceId: string,
  { waitedSeconds, leaving }: { waitedSeconds: number; leaving?: AbortSignal | undefined },
): Promise<void> {
  await beginErasurePass(pool, workspaceId, waitedSeconds);
  for (let isRunning = true; isRunning && !leaving?.aborted; ) {
    const started = performance.now();
    isRunning = await eraseFromLog(pool, workspaceId, SLICE);
    // Leaves half of the time to the lanes.
    if (isRunning) await rest(performance.now() - started, leaving);
  }
}
