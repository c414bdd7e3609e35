import { setTimeout as sleep } from 'node:timers/promises';

/** Far beyond what a start takes, also on a machine that is busy with other things. */
const DEADLINE_MS = 120_000;
const POLL_MS = 50;

/**
 * Resolves when `api` says that it is ready and `board` answers.
 * @param signal ends the wait when it is aborted.
 * @throws {Error} with what `/readyz` misses, when that takes too long.
 */
export async function waitUntilReady(api: string, board: string, signal: AbortSignal): Promise<void> {
  const end = Date.now() + DEADLINE_MS;
  let missing = 'no answer';
  while (!signal.aborted) {
    try {
      const response = await fetch(`${api}/readyz`, { signal: AbortSignal.timeout(2000) });
      missing = await response.text();
      if (response.ok) {
        await fetch(`${board}/healthz`, { signal: AbortSignal.timeout(2000) });
        return;
      }
    } catch {
      // It does not listen yet.
    }
    if (Date.now() > end) throw new Error(`not ready after ${DEADLINE_MS / 1000} s: ${missing}`);
    await sleep(POLL_MS);
  }
}
