import { expect, test } from 'vitest';
import { type Backend, startFleet } from '../guarantees/fleet.ts';
import { waitUntilApplied } from '../identity-model/run.ts';
import { isLong, lengthOf } from '../setup/length.ts';
import { deadlocksOf, readCrossed, sendCrossingMerges } from './crossing-merges.ts';
import { raiseLimits } from './limits.ts';

const MERGES = Number(process.env.CROSSING_MERGES ?? lengthOf({ short: 1000, long: 10_000 }));

const fleets: { backend: Backend; lanes: number }[] = [
  { backend: 'redis', lanes: 4 },
  ...(isLong ? [{ backend: 'postgres', lanes: 1 } as const] : []),
];

// Opposite merges, chains and cycles over 100 users by many workers. A deadlock in a log fails the test.
test.each(fleets)(
  `${MERGES} crossing merges lose no event or sum; queue on $backend, $lanes lanes`,
  { timeout: 300_000 },
  async ({ backend, lanes }) => {
    const fleet = await startFleet(backend, { env: { LANES: String(lanes), LOG_LEVEL: 'info' } });
    await raiseLimits(fleet);
    const { merges, events, refused } = await sendCrossingMerges(fleet, { merges: MERGES });
    expect(refused).toBe(0);
    await waitUntilApplied(fleet, events + merges, 120_000);

    const crossed = await readCrossed(fleet);
    expect(crossed).toMatchObject({ counted: events, events, living: crossed.summaries, deadLetters: 0 });
    expect(deadlocksOf(fleet)).toEqual([]);
    expect(await fleet.fallen()).toEqual([]);
    await fleet.stop();
  },
);
