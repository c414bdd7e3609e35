import { setTimeout as sleep } from 'node:timers/promises';
import { type Answer, createClient } from '../../test/guarantees/keep-alive-client.ts';
import type { Fleet } from '../../test/setup/fleet.ts';

/** What a knock is about; nobody else goes by that name, and it is in no comparison. */
const knock = { external_id: 'nobody' };

/**
 * Asks every edge one request after the other, as a client that wants to know how things stand; twice at least, since the
 * first answers may be those to what was on its way before.
 */
export async function knockFor(fleet: Fleet, key: string, milliseconds: number): Promise<Answer[]> {
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

/** Milliseconds from now until every edge has answered a request with 201. */
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

/** Answers that are no 503 as it is documented, with the time after which to come again. */
export const notUnavailable = (answers: Answer[]): Answer[] =>
  answers.filter(
    ({ status, retryAfter, body }) =>
      status !== 503 || retryAfter !== '1' || body?.message !== 'Service Unavailable',
  );

export const longest = (answers: { milliseconds: number }[]): number =>
  Math.max(0, ...answers.map(({ milliseconds }) => milliseconds));

/** The value below which a share of them lies. */
export function quantile(values: number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}
