import { describe, expect, test } from 'vitest';
import { type Backend, startFleet } from '../guarantees/fleet.ts';
import { settled } from '../identity-model/run.ts';
import { raiseLimits } from './limits.ts';
import { patience, raceDeletes, raceMerges, readReturned, readSums } from './races.ts';

/** `npm run model` asks for 60. */
const SECONDS = Number(process.env.RACE_SECONDS ?? 3);

const fleets: { backend: Backend; lanes: number }[] = [
  { backend: 'redis', lanes: 4 },
  { backend: 'postgres', lanes: 1 },
];

describe.each(fleets)('queue on $backend, $lanes lanes', ({ backend, lanes }) => {
  test('merge and identify racing with track of the same users: every event and purchase is counted once', {
    timeout: 300_000,
  }, async () => {
    const fleet = await startFleet(backend, { env: { ...patience, LANES: String(lanes) } });
    await raiseLimits(fleet);
    const { elements, sums } = await raceMerges(fleet, SECONDS);
    await settled(fleet, elements, 120_000);
    expect(await readSums(fleet)).toEqual({
      counted: sums.events,
      events: sums.events,
      pieces: sums.pieces,
      revenue: sums.pieces,
      deadLetters: 0,
    });
    await fleet.stop();
  });

  test('delete racing with track, merge and identify of the same users: nothing that was accepted before a delete comes back after it', {
    timeout: 300_000,
  }, async () => {
    const fleet = await startFleet(backend, { env: { ...patience, LANES: String(lanes) } });
    await raiseLimits(fleet);
    const { elements, before } = await raceDeletes(fleet, SECONDS);
    await settled(fleet, elements, 120_000);
    expect(before.length).toBeGreaterThan(100);
    expect(await readReturned(fleet, before)).toEqual({ returned: [], orphans: 0 });
    await fleet.stop();
  });
});
