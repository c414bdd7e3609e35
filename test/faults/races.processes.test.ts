import { beforeAll, describe, expect, test } from 'vitest';
import { type Backend, countProcessed, type Fleet, startFleet } from '../guarantees/fleet.ts';
import { waitUntilApplied } from '../identity-model/run.ts';
import { isLong, lengthOf } from '../setup/length.ts';
import { raiseLimits } from './limits.ts';
import { patience, raceDeletes, raceMerges, readReturned, readSums } from './races.ts';

const SECONDS = Number(process.env.RACE_SECONDS ?? lengthOf({ short: 2, long: 60 }));

const fleets: { backend: Backend; lanes: number }[] = [
  { backend: 'redis', lanes: 4 },
  ...(isLong ? [{ backend: 'postgres', lanes: 1 } as const] : []),
];

describe.each(fleets)('queue on $backend, $lanes lanes', ({ backend, lanes }) => {
  let fleet: Fleet;
  beforeAll(async () => {
    fleet = await startFleet(backend, { env: { ...patience, LANES: String(lanes) } });
    await raiseLimits(fleet);
    return fleet.stop;
  });

  // Keep this test first: it counts all rows of the database.
  test('merge and identify race with track of the same users: each event is counted once', {
    timeout: 300_000,
  }, async () => {
    const { elements, sums } = await raceMerges(fleet, SECONDS);
    await waitUntilApplied(fleet, elements, 120_000);
    expect(await readSums(fleet)).toEqual({
      counted: sums.events,
      events: sums.events,
      pieces: sums.pieces,
      revenue: sums.pieces,
      deadLetters: 0,
    });
  });

  test('delete races with track, merge and identify: deleted users do not return', {
    timeout: 300_000,
  }, async () => {
    const already = await countProcessed(fleet);
    const { elements, before } = await raceDeletes(fleet, SECONDS);
    await waitUntilApplied(fleet, already + elements, 120_000);
    expect(before.length).toBeGreaterThan(100);
    expect(await readReturned(fleet, before)).toEqual({ returned: [], orphans: 0 });
  });
});
