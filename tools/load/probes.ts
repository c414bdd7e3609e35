import { setTimeout as sleep } from 'node:timers/promises';
import { postHead, toMessage } from './bodies.ts';
import { HttpConnection } from './http-connection.ts';
import { createLatencies, type LatencySummary } from './latencies.ts';
import type { Observer } from './observer.ts';
import { countAnswer, type Tally } from './tally.ts';

/** Milliseconds between the first two checks. Each later check waits a tenth of the elapsed time. */
const FIRST_CHECK_MS = 2;

/** Milliseconds after which a profile that cannot be read ends the measurement. */
const TIMEOUT_MS = 60_000;

export interface ProbeOptions {
  host: string;
  port: number;
  key: string;
  observer: Observer;
  /** `performance.now()` after which no probe is sent. It is read before each probe. */
  readonly end: number;
}

export interface ProbeResult {
  /** Time from the response that accepted a profile until the profile could be read. */
  readable: LatencySummary | undefined;
  /** Reason why the probes ended early, if they did. */
  failure: string | undefined;
  /** External ids of the users that the probes created. */
  users: string[];
}

/** Maximum external ids in one request to /users/delete. */
const MAX_DELETED = 50;

/** @throws {Error} naming the response if a request is rejected */
export async function deleteUsers(url: string, key: string, users: string[]): Promise<void> {
  for (let first = 0; first < users.length; first += MAX_DELETED) {
    const response = await fetch(new URL('/users/delete', url), {
      method: 'POST',
      headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json' },
      body: JSON.stringify({ external_ids: users.slice(first, first + MAX_DELETED) }),
    });
    await response.text();
    if (!response.ok) throw new Error(`POST /users/delete answered ${response.status}`);
  }
}

/**
 * Sends one request at a time alongside the load. Each creates a profile, which is then read until it is
 * found. Its objects count in `tally` like all others.
 */
export async function runProbes(options: ProbeOptions, tally: Tally): Promise<ProbeResult> {
  const { observer, key, host, port } = options;
  const latencies = createLatencies();
  const connection = new HttpConnection({ host, port });
  const head = postHead(`${host}:${port}`, '/users/track', key);
  const run = Date.now().toString(36);
  let failure: string | undefined;
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
    failure = (error as Error).message;
  } finally {
    connection.close();
  }
  return { readable: latencies.summary(), failure, users };
}

/** Returns the milliseconds until the profile can be read. */
async function waitUntilReadable(observer: Observer, externalId: string): Promise<number> {
  const accepted = performance.now();
  for (;;) {
    if (await observer.isReadable(externalId)) return performance.now() - accepted;
    const waited = performance.now() - accepted;
    if (waited > TIMEOUT_MS)
      throw new Error(`an accepted profile could not be read for ${TIMEOUT_MS / 1000} s`);
    await sleep(Math.max(FIRST_CHECK_MS, waited / 10));
  }
}
