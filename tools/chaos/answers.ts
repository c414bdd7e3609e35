import { setTimeout as sleep } from 'node:timers/promises';
import { type Answer, createClient } from '../../test/guarantees/keep-alive-client.ts';
import type { Fleet } from '../../test/setup/fleet.ts';

/** User of the requests that test availability. It is used for no other purpose and not compared. */
const knock = { external_id: 'nobody' };

/**
 * Sends requests to every web process in turn for the given time, as a client that checks availability, at
 * least twice to each: the first responses may still belong to work that began earlier.
 */
export async function requestFor(fleet: Fleet, key: string, milliseconds: number): Promise<Answer[]> {
  const client = createClient(key);
  const answers: Answer[] = [];
  const end = Date.now() + milliseconds;
  while (Date.now() < end || answers.length < 2 * fleet.edges.length) {
    for (const { port } of fleet.edges) {
      answers.push(await client.post(port, '/users/track', { attributes: [knock] }));
    }
    await sleep(20);
  }
  client.close();
  return answers;
}

/** Returns the milliseconds from now until every web process has answered a request with 201. */
export async function untilAccepted(fleet: Fleet, key: string, deadline: number): Promise<number> {
  const from = Date.now();
  const client = createClient(key);
  try {
    for (const { port } of fleet.edges) {
      for (;;) {
        const { status } = await client.post(port, '/users/track', { attributes: [knock] });
        if (status === 201) break;
        if (Date.now() - from > deadline) return Number.POSITIVE_INFINITY;
        await sleep(20);
      }
    }
    return Date.now() - from;
  } finally {
    client.close();
  }
}

/** Returns the responses that are not the documented 503 with its Retry-After. */
export const notUnavailable = (answers: Answer[]): Answer[] =>
  answers.filter(
    ({ status, retryAfter, body }) =>
      status !== 503 || retryAfter !== '1' || body?.message !== 'Service Unavailable',
  );

export const longest = (answers: { milliseconds: number }[]): number =>
  Math.max(0, ...answers.map(({ milliseconds }) => milliseconds));

/** Returns the quantile of the values for a share. */
export function quantile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
