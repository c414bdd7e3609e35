import { setTimeout as sleep } from 'node:timers/promises';

/** Far beyond what a start takes, also on a machine that is busy with other things. */
const DEADLINE_MS = 120_000;
const POLL_MS = 50;
const PATIENCE_MS = 2000;

/**
 * Resolves when all of the pages have answered with 2xx, each once.
 * @param signal ends the wait when it is aborted.
 * @throws {Error} with the last word of the page that is missing, when that takes too long.
 */
export async function waitUntilReady(pages: string[], signal: AbortSignal): Promise<void> {
  const end = Date.now() + DEADLINE_MS;
  for (const page of pages) {
    let missing = `no answer of ${page}`;
    while (!signal.aborted) {
      try {
        const response = await fetch(page, { signal: AbortSignal.timeout(PATIENCE_MS) });
        missing = await response.text();
        if (response.ok) break;
      } catch {
        // It does not listen yet.
      }
      if (Date.now() > end) throw new Error(`not ready after ${DEADLINE_MS / 1000} s: ${missing}`);
      await sleep(POLL_MS);
    }
  }
}
