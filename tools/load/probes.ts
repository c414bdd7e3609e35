import { setTimeout as sleep } from 'node:timers/promises';
import { postHead, toMessage } from './bodies.ts';
import { HttpConnection } from './http-connection.ts';
import { createLatencies, type LatencySummary } from './latencies.ts';
import type { Observer } from './observer.ts';
import { countAnswer, type Tally } from './tally.ts';

/** Between the first two looks, in ms; later ones wait a tenth of the time that has gone by. */
const LOOK_AGAIN = 2;

/** A probe that nobody can read after so many ms ends the measurement. */
const PATIENCE = 60_000;

export interface ProbeOptions {
  host: string;
  port: number;
  key: string;
  observer: Observer;
  /** `performance.now()` after which no probe is sent; looked at before each. */
  readonly end: number;
}

export interface ProbeResult {
  /** From the answer that accepted a profile until it could be read. */
  readable: LatencySummary | undefined;
  /** Why there is no more to tell, if so. */
  trouble: string | undefined;
  /** External ids of the users that the probes made. */
  users: string[];
}

/** External ids in one request to /users/delete, by the API's contract. */
const MOST_DELETED = 50;

/** @throws {Error} naming the answer if one request is refused */
export async function deleteUsers(url: string, key: string, users: string[]): Promise<void> {
  for (let first = 0; first < users.length; first += MOST_DELETED) {
    const response = await fetch(new URL('/users/delete', url), {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ external_ids: users.slice(first, first + MOST_DELETED) }),
    });
    await response.text();
    if (!response.ok) throw new Error(`POST /users/delete answered ${response.status}`);
  }
}

/**
 * Beside the load, one request at a time that makes a profile of its own, which is then looked for. Its
 * objects count in `tally` like all others.
 */
export async function runProbes(options: ProbeOptions, tally: Tally): Promise<ProbeResult> {
  const { observer, key, host, port } = options;
  const latencies = createLatencies();
  const connection = new HttpConnection({ host, port });
  const head = postHead(`${host}:${port}`, '/users/track', key);
  const run = Date.now().toString(36);
  let trouble: string | undefined;
  const users: string[] = [];
  try {
    for (let number = 0; performance.now() < options.end; number++) {
      const begin = performance.now();
      const externalId = `probe-${run}-${number}`;
      const body = JSON.stringify({ attributes: [{ external_id: externalId, probe: number }] });
      const answer = await connection.send(toMessage(head, body).bytes);
      countAnswer(tally, answer);
      if (answer.status === 201) {
        users.push(externalId);
        latencies.add(await waitUntilReadable(observer, externalId));
      }
      await sleep(Math.max(0, Math.min(begin + observer.probeEvery, options.end) - performance.now()));
    }
  } catch (error) {
    trouble = (error as Error).message;
  } finally {
    connection.close();
  }
  return { readable: latencies.summary(), trouble, users };
}

/** Milliseconds until then. */
async function waitUntilReadable(observer: Observer, externalId: string): Promise<number> {
  const accepted = performance.now();
  for (;;) {
    if (await observer.isReadable(externalId)) return performance.now() - accepted;
    const waited = performance.now() - accepted;
    if (waited > PATIENCE) throw new Error(`an accepted profile could not be read for ${PATIENCE / 1000} s`);
    await sleep(Math.max(LOOK_AGAIN, waited / 10));
  }
}
