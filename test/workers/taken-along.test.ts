import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import type { LaneEntry } from '../../src/queue/lanes.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { applyBatch } from './apply-batch.ts';
import { attributes } from './batch.ts';
import { createFenceScene } from './fence-scene.ts';

describe.each(['redis', 'postgres'] as const)('queue on %s', (kind) => {
  let scene: Awaited<ReturnType<typeof createFenceScene>>;
  beforeAll(async () => {
    scene = await createFenceScene(kind);
  });
  afterAll(() => scene.stop());

  /** Creates envelopes of lane 0, each of which adds its number to the user's trail. */
  const trail = (user: string, count: number) =>
    Array.from({ length: count }, (_, number) =>
      scene.plain(0, attributes(user, { change: { trail: { array: { add: [String(number)] } } } })),
    );
  const numbers = (count: number) => Array.from({ length: count }, (_, number) => String(number));

  async function addOneByOne(entries: LaneEntry[]): Promise<void> {
    for (const entry of entries) await scene.producer.add([entry]);
  }

  async function trailOf(user: string): Promise<string[]> {
    const { rows } = await scene.pool.query(
      "select custom_attributes -> 'trail' as trail from profiles where external_id = $1",
      [user],
    );
    return rows[0]?.trail ?? [];
  }

  const allApplied = (entries: LaneEntry[]) =>
    waitUntil(async () => (await Promise.all(entries.map(({ id }) => scene.ledger(id)))).every(Boolean), {
      what: 'the envelopes to take effect',
    });

  async function transactionsOf(entries: LaneEntry[]): Promise<number> {
    const { rows } = await scene.pool.query(
      'select count(distinct xmin::text)::integer as count from ledger where envelope_id = any ($1::uuid[])',
      [entries.map(({ id }) => id)],
    );
    return rows[0].count;
  }

  const laneIsEmpty = () =>
    waitUntil(
      async () => (await scene.jobs(0, 'waiting')).length + (await scene.jobs(0, 'active')).length === 0,
      {
        what: 'an empty lane',
      },
    );

  describe('a worker', () => {
    let stop: () => Promise<unknown>;
    beforeEach(() => {
      stop = scene.startWorker([0]);
    });
    afterEach(() => stop());

    test('G3: envelopes that wait for a running one are applied in order in few transactions', async () => {
      // The first snapshot may be too early to contain the envelopes, so several rounds are tried.
      for (let round = 0, fewest = 20; fewest > 5; round++) {
        expect(round, `${fewest} transactions at best`).toBeLessThan(10);
        const user = `${kind}-walker-${round}`;
        const entries = trail(user, 20);
        await addOneByOne(entries.slice(0, 1));
        await allApplied(entries.slice(0, 1));
        const blocker = await scene.pool.connect();
        await blocker.query('begin');
        await blocker.query('select from profiles where workspace_id = $2 and external_id = $1 for update', [
          user,
          scene.workspace.id,
        ]);
        await addOneByOne(entries.slice(1));
        await blocker.query('select pg_sleep(0.3)');
        await blocker.query('commit');
        blocker.release();
        await allApplied(entries);
        expect(await trailOf(user)).toEqual(numbers(20));
        await laneIsEmpty();
        fewest = await transactionsOf(entries.slice(1));
      }
    });

    test('G3: a lane full of small envelopes is drained in order in few transactions', async () => {
      await stop();
      const user = `${kind}-backlog`;
      const entries = trail(user, 300);
      // A backlog that is larger than one snapshot.
      await addOneByOne(entries);
      stop = scene.startWorker([0]);
      await allApplied(entries);
      expect(await trailOf(user)).toEqual(numbers(300));
      expect(await transactionsOf(entries)).toBeLessThan(60);
      await laneIsEmpty();
    });

    test('G2: envelopes have one effect each if another worker has already applied some of them', async () => {
      const user = `${kind}-twice`;
      const entries = trail(user, 12);
      await applyBatch(scene.pool, entries.slice(0, 3));
      await scene.producer.add(entries);
      await allApplied(entries);
      await laneIsEmpty();
      expect(await trailOf(user)).toEqual(numbers(12));
    });
  });
});
