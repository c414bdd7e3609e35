import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Asks again and again until the answer is truthy, and returns it. An error counts as no.
 * @throws {Error} naming `what` and the last error, `deadline` milliseconds later (default 60,000).
 */
export async function waitUntil<T>(
  condition: () => T | Promise<T>,
  { what, deadline = 60_000 }: { what: string; deadline?: number },
): Promise<NonNullable<T>> {
  const end = Date.now() + deadline;
  let last: unknown;
  for (;;) {
    try {
      last = undefined;
      const answer = await condition();
      if (answer) return answer;
    } catch (error) {
      last = error;
    }
    if (Date.now() > end) throw new Error(`waited ${deadline} ms in vain for ${what}`, { cause: last });
    await sleep(20);
  }
}
