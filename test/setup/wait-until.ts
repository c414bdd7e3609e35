import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds between two questions: a tenth of what was waited already, between these. */
const SOONEST = 20;
const LATEST = 150;

export interface WaitOptions {
  what: string;
  /** Milliseconds; default 60,000. */
  deadline?: number;
  /** Of what is so for a moment only: it is asked as often after a minute as in the beginning. */
  fleeting?: boolean;
  /** What stands in the error beside `what`: how things are when the wait was in vain. */
  explain?(): Promise<string>;
}

/**
 * Asks again and again until the answer is truthy, and returns it. An error counts as no. Whoever waits long is asked
 * less often: each question costs processor time, of which the wait itself is made.
 * @throws {Error} naming `what` and the last error, `deadline` milliseconds later
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
      const found = await explain?.().catch(String);
      throw new Error(`waited ${deadline} ms in vain for ${what}${found ? `\n${found}` : ''}`, {
        cause: last,
      });
    }
    await sleep(fleeting ? SOONEST : Math.min(Math.max(SOONEST, waited / 10), LATEST));
  }
}
