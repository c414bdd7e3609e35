import { describe, expect, test } from 'vitest';
import { type Backend, startFleet } from '../guarantees/fleet.ts';
import { isLong, lengthOf } from '../setup/length.ts';
import { runModel, waitUntilApplied } from './run.ts';
import { describeCards, readStored } from './stored.ts';

const operations = Number(process.env.MODEL_OPERATIONS ?? lengthOf({ short: 800, long: 100_000 }));
const seed = Number(process.env.MODEL_SEED ?? Date.now() % 1_000_000);

const fleets: { backend: Backend; lanes: number }[] = [
  ...(isLong ? [{ backend: 'redis', lanes: 1 } as const] : []),
  { backend: 'redis', lanes: 4 },
  { backend: 'postgres', lanes: 1 },
];

describe.each(fleets)('queue on $backend, $lanes lanes', ({ backend, lanes }) => {
  test('G3: track and identity operations end as if applied one by one, in order of acceptance', {
    timeout: 3_600_000,
  }, async () => {
    const fleet = await startFleet(backend, { env: { LANES: String(lanes) } });
    await fleet.pool.query(
      `insert into rate_limits (workspace_id, bucket, requests, window_seconds)
         select $1, bucket, 100000000, 60 from unnest($2::text[]) as bucket`,
      [fleet.workspace.id, ['users.track', 'users.identity', 'users.external_ids']],
    );
    const run = await runModel(fleet, {
      operations,
      seed,
      lanes,
      clients: 16,
      circles: 40,
      kills: Math.max(2, Math.round(operations / 10_000)),
    });
    await waitUntilApplied(fleet, run.operations, 120_000);
    expect(run.surprises, `seed ${seed}`).toEqual([]);
    expect(await readStored(fleet.pool, fleet.workspace.id), `seed ${seed}`).toEqual(
      describeCards(run.model.cards),
    );
    const { rows } = await fleet.pool.query('select reason from dead_letters');
    expect(rows).toEqual([]);
    expect(await fleet.fallen()).toEqual([]);
    await fleet.stop();
  });
});
