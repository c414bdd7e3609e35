import { setTimeout as sleep } from 'node:timers/promises';
import { expect } from 'vitest';
import type { Json } from '../../src/profile/json.ts';
import type { Fleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { paceNow } from './pace.ts';

/** Milliseconds between two requests of the quiet workspace. */
const PAUSE_MS = 40;

/** Milliseconds after which 99% and 100% of the quiet workspace's requests must be readable. */
const MAX_P99_MS = 500;
const MAX_MS = 1000;

const eventOf = (external_id: string): Json => ({
  events: [{ external_id, name: 'visited', time: '2026-01-02T03:04:05Z' }],
});

/**
 * Sends requests of the quiet workspace.
 *
 * @param bodyOf returns the body of a request that creates a user with this external id; default: an event
 * @returns sorted milliseconds from response until the user is readable
 */
export async function sendQuietly(
  { edges, pool }: Fleet,
  { key, id }: { key: string; id: string },
  isOver: () => Promise<boolean>,
  bodyOf: (externalId: string) => Json = eventOf,
): Promise<number[]> {
  const waits: number[] = [];
  for (let number = 0; !(await isOver()) || number < 20; number++) {
    const external_id = `quiet-${crypto.randomUUID()}`;
    const { status } = await send(edges[0]!.port, { path: '/users/track', key, json: bodyOf(external_id) });
    expect(status).toBe(201);
    const accepted = performance.now();
    const isReadable = async () =>
      (
        await pool.query('select from profiles where workspace_id = $1 and external_id = $2', [
          id,
          external_id,
        ])
      ).rowCount === 1;
    while (!(await isReadable())) await sleep(4);
    waits.push(performance.now() - accepted);
    await sleep(PAUSE_MS);
  }
  return waits.sort((one, other) => one - other);
}

/** Reports the times of quiet requests, and checks that their events were readable in time. */
export function expectQuickReads(what: string, waits: readonly number[]): void {
  const at = (share: number) => waits[Math.min(waits.length - 1, Math.floor(waits.length * share))]!;
  const [median, p99, most] = [at(0.5), at(0.99), at(1)].map(Math.round);
  process.stderr.write(
    `${what}: ${waits.length} quiet requests, p50 ${median} ms, p99 ${p99} ms, most ${most} ms\n`,
  );
  const pace = paceNow();
  expect(p99).toBeLessThanOrEqual(MAX_P99_MS * pace);
  expect(most).toBeLessThanOrEqual(MAX_MS * pace);
}
