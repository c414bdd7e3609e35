import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds between two checks: a tenth of the time waited so far, within these limits. */
const SOONEST = 20;
const LATEST = 150;

export interface WaitOptions {
  what: string;
  /** Milliseconds; default 60,000. */
  deadline?: number;
  /** The condition holds only for a moment, so it is checked at the shortest interval for the whole time. */
  fleeting?: boolean;
  /** Adds a description of the state to the error, after `what`. */
  explain?(): Promise<string>;
}

/**
 * Checks repeatedly until the answer is truthy, and returns it. An error counts as no. Long waits are checked
 * less often,
 * because checks use the processor time that the awaited work needs.
 * @throws {Error} with `what` and the last error, after `deadline` milliseconds
 */
export async function waitUntil<T>(
  condition: () => T | Promise<T>,
  { what, deadline = 60_000, fleeting = false, explain }: WaitOptions,
): Promise<NonNullable<T>> {
  const begin = Date.now();
  let last: unknown;
  for (;;) {
    try {
      last = undefined;
      const answer = await condition();
      if (answer) return answer;
    } catch (error) {
      last = error;
    }
    const waited = Date.now() - begin;
    if (waited > deadline) {
      const result = await explain?.().catch(String);
      throw new Error(`waited ${deadline} ms in vain for ${what}${result ? `\n${result}` : ''}`, {
        cause: last,
      });
    }
    await sleep(fleeting ? SOONEST : Math.min(Math.max(SOONEST, waited / 10), LATEST));
  }
}
