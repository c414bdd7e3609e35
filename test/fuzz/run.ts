import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import type { Shot } from './requests.ts';
import { createGun, type Gun, type Hit } from './wire.ts';

/** Attempts for a request that is answered with 503: a busy machine is not a bug, but a permanent 503 is. */
const TRIES = 3;

/** Requests that are generated at a time. */
const BATCH = 500;

export interface FuzzResult {
  sent: number;
  /** Requests that were answered with 503 at first and otherwise when they were repeated. */
  busy: number;
  /** Number of answers by status, for each aim; `none`: the connection ended without an answer. */
  statuses: Map<string, Map<string, number>>;
  /** Descriptions of bugs, each with the file of the bytes that were sent. */
  bugs: string[];
}

/**
 * Sends so many requests over so many connections. The same seed and count send the same requests.
 * @param folder for the requests that found a bug
 */
export async function fuzz(options: {
  shots: fc.Arbitrary<Shot>;
  port: number;
  seed: number;
  count: number;
  /** Milliseconds after which no further requests are generated. */
  deadline: number;
  connections: number;
  /** Texts that must not be in an answer. */
  secrets: string[];
  folder: string;
  onProgress(sent: number): void;
}): Promise<FuzzResult> {
  const { shots, port, seed, count, connections, secrets, folder, onProgress } = options;
  const result: FuzzResult = { sent: 0, busy: 0, statuses: new Map(), bugs: [] };
  const end = performance.now() + options.deadline;
  const guns = Array.from({ length: connections }, () => createGun(port));

  function blame(shot: Shot, number: number, why: string): void {
    const file = join(folder, `shot-${seed}-${number}`);
    writeFileSync(file, shot.bytes);
    result.bugs.push(`${shot.aim}: ${why} (shot ${number}, ${file})`);
  }

  function checkAnswer(shot: Shot, number: number, { status, answer }: Hit): void {
    const counts = result.statuses.get(shot.aim) ?? new Map<string, number>();
    result.statuses.set(shot.aim, counts);
    const name = String(status ?? 'none');
    counts.set(name, (counts.get(name) ?? 0) + 1);
    // Operations that SCIM permits to omit are answered with 501, as the protocol requires.
    if (status !== undefined && status >= 500 && status !== 501) blame(shot, number, answer.slice(0, 400));
    if (status === undefined && !shot.alone) blame(shot, number, 'no answer');
    if (/\n\s+at .+:\d+:\d+|node_modules|file:\/\/\//.test(answer) && !shot.aim.endsWith('anywhere'))
      blame(shot, number, 'the answer tells of the program');
    if (secrets.some((secret) => answer.includes(secret))) blame(shot, number, 'the answer tells a secret');
  }

  async function fireAgain(gun: Gun, shot: Shot): Promise<Hit> {
    let hit = await gun.fire(shot);
    for (
      let tries = 1;
      hit.status === 503 && /\r\nRetry-After: /.test(hit.answer) && tries < TRIES;
      tries++
    ) {
      await sleep(1000);
      hit = await gun.fire(shot);
      if (hit.status !== 503) result.busy++;
    }
    return hit;
  }

  for (let first = 0; first < count && performance.now() < end; first += BATCH) {
    const batch = fc.sample(shots, { seed: seed + first, numRuns: Math.min(BATCH, count - first) });
    let next = 0;
    await Promise.all(
      guns.map(async (gun) => {
        while (next < batch.length && performance.now() < end) {
          const number = next++;
          const shot = batch[number]!;
          try {
            checkAnswer(shot, first + number, await fireAgain(gun, shot));
          } catch (error) {
            blame(shot, first + number, (error as Error).message);
          }
          result.sent++;
        }
      }),
    );
    onProgress(result.sent);
  }
  for (const gun of guns) gun.stop();
  return result;
}
