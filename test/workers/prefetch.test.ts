import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { AcceptedObject } from '../../src/jobs/envelope.ts';
import { readConfig } from '../../src/platform/config.ts';
import { QUEUE_SCHEMA } from '../../src/queue/bullmq-queues.ts';
import { connectWorker } from '../../src/queue/connection.ts';
import type { LaneEntry } from '../../src/queue/lanes.ts';
import { startTroubleProxy } from '../../tools/chaos/trouble-proxy.ts';
import { createPrefetch } from '../../workers/lane/prefetch.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { attributes, event } from './batch.ts';
import { createFenceScene } from './fence-scene.ts';

describe.each(['redis', 'postgres'] as const)('queue on %s', (kind) => {
  let scene: Awaited<ReturnType<typeof createFenceScene>>;
  beforeAll(async () => {
    scene = await createFenceScene(kind);
  });
  afterAll(() => scene.stop());

  async function addOneByOne(entries: LaneEntry[]): Promise<void> {
    for (const entry of entries) await scene.producer.add([entry]);
  }

  describe('a read', () => {
    const prefetch = () => createPrefetch(scene.laneStore, 0);
    const ids = (entries: { id: string }[]) => entries.map(({ id }) => id);
    const some = (count: number, objects: AcceptedObject[] = [event('ann')]) =>
      Array.from({ length: count }, () => scene.plain(0, ...objects));
    const held = ({ id }: { id: string }) => ({ lane: 0, id, token: 'mine' });
    afterEach(() => scene.queues[0]!.drain());

    test('G3: finds what stands behind the next job, in the order of the lane', async () => {
      const entries = some(20);
      await addOneByOne(entries);
      const { read, take } = prefetch();
      await read([], Promise.resolve());
      expect(ids(await take(held(entries[0]!)))).toEqual(ids(entries.slice(1)));
      expect(await take(held(entries[0]!))).toEqual([]);
    });

    test('G3: where more waits than it sees, finds those that come next', async () => {
      const entries = some(200);
      await addOneByOne(entries);
      const { read, take } = prefetch();
      await read([], Promise.resolve());
      expect(ids(await take(held(entries[0]!)))).toEqual(ids(entries.slice(1, 128)));
      // While these are applied they still wait.
      await read(entries.slice(1, 128), Promise.resolve());
      expect(ids(await take(held(entries[128]!)))).toEqual(ids(entries.slice(129)));
    });

    test('G3: a job that comes before the read has seen anything waits for what is behind it', async () => {
      const entries = some(20);
      await addOneByOne(entries);
      const { read, take } = prefetch();
      const job = await scene.handOut('mine');
      void read([], Promise.resolve());
      expect(ids(await take(held(entries[0]!)))).toEqual(ids(entries.slice(1)));
      expect(await take(held(entries[1]!))).toEqual([]);
      await job.moveToCompleted(undefined as never, 'mine', false);
    });

    test('G3: takes nothing along for a job that has been handed to somebody else since: the next one may be in work there', async () => {
      const entries = some(4);
      await addOneByOne(entries);
      const { read, take, takeMore } = prefetch();
      const mine = await scene.handOut('mine');
      expect(ids(await takeMore(held(entries[0]!), [], Promise.resolve()))).toEqual(ids(entries.slice(1)));
      // As when its lock runs out. The first takes effect, and the second is in work.
      await mine.moveToWait('mine');
      const again = await scene.handOut('other');
      void read([], Promise.resolve());
      expect(await take(held(entries[0]!))).toEqual([]);
      await again.moveToCompleted(undefined as never, 'other', false);
      const next = await scene.handOut('other');
      expect([again.id, next.id]).toEqual(ids(entries.slice(0, 2)));
      void read([], Promise.resolve());
      expect(await take(held(entries[0]!))).toEqual([]);
      expect(await takeMore(held(entries[0]!), [], Promise.resolve())).toEqual([]);
      await next.moveToCompleted(undefined as never, 'other', false);
    });

    test('G3: keeps the order of the lane when the next job takes effect before its turn, in the middle of a read', async () => {
      const entries = some(40);
      await addOneByOne(entries);
      const [first] = entries;
      let looks = 0;
      let reads = 0;
      let end = () => {};
      const applied = new Promise<void>((resolve) => (end = resolve));
      const { read, take, leaveOut } = createPrefetch(
        {
          ...scene.laneStore,
          async head(lane, most) {
            if (++looks === 3) end();
            return scene.laneStore.head(lane, most);
          },
          async read(...asked) {
            const found = await scene.laneStore.read(...asked);
            if (++reads === 2) {
              leaveOut([first!.id]);
              await scene.laneStore.remove(0, first!.id);
            }
            return found;
          },
        },
        0,
      );
      await read([], applied);
      expect(ids(await take(held(entries[1]!)))).toEqual(ids(entries.slice(2)));
    });

    test('G3: finds nothing for a job that is not the one that was next', async () => {
      const entries = some(5);
      await addOneByOne(entries);
      const { read, take } = prefetch();
      await read([], Promise.resolve());
      expect(await take(held(entries[1]!))).toEqual([]);
    });

    test('G3: goes on behind what it has found, and forgets all of it when its end has gone', async () => {
      const entries = some(6);
      await addOneByOne(entries.slice(0, 4));
      const { read, take } = prefetch();
      // The first is being applied, and the second with it.
      const readAgain = () => read([entries[1]!], Promise.resolve());
      await readAgain();
      await addOneByOne(entries.slice(4));
      await readAgain();
      expect(ids(await take(held(entries[2]!)))).toEqual(ids(entries.slice(3)));

      await readAgain();
      await scene.queues[0]!.remove(entries[5]!.id);
      await addOneByOne(some(2));
      await readAgain();
      expect(await take(held(entries[2]!))).toEqual([]);
    });

    if (kind === 'postgres')
      test('G3: takes along nothing that was acknowledged after an envelope that came late to its place', async () => {
        const entries = some(6);
        await addOneByOne(entries.slice(0, 5));
        // An add takes its number before it commits: the third is not there yet.
        const late = await hide(entries[2]!.id);
        const { read, take } = prefetch();
        await read([], Promise.resolve());
        await late.commit();
        await addOneByOne(entries.slice(5));
        await read([], Promise.resolve());
        expect(ids(await take(held(entries[0]!)))).toEqual(ids([entries[1]!, entries[3]!, entries[4]!]));
      });

    async function hide(id: string) {
      const { rows } = await scene.pool.query(
        `with hidden as (delete from ${QUEUE_SCHEMA}.job where id = $1 returning *)
         select to_json(hidden)::text as row from hidden`,
        [id],
      );
      return {
        commit: () =>
          scene.pool.query(
            `insert into ${QUEUE_SCHEMA}.job
             select * from json_populate_record(null::${QUEUE_SCHEMA}.job, $1::json)`,
            [rows[0].row],
          ),
      };
    }

    test('G3: ends in front of a fence', async () => {
      const entries = some(3);
      await addOneByOne(entries);
      await scene.producer.add(scene.fence([0, 1], event('ann')));
      await addOneByOne(some(2));
      const { read, take } = prefetch();
      await read([], Promise.resolve());
      expect(ids(await take(held(entries[0]!)))).toEqual(ids(entries.slice(1)));
      await scene.queues[1]!.drain();
    });

    if (kind === 'redis')
      test('over a slow network nobody waits for a read, and none follows for a while', async () => {
        const network = await startTroubleProxy(scene.env.REDIS_URL!, Math.random);
        const far = connectWorker(readConfig({ ...scene.env, REDIS_URL: network.url }), '');
        await waitUntil(far.ready, { what: 'Redis' });
        const entries = some(5);
        await addOneByOne(entries);
        await scene.queues[0]!.remove(entries[0]!.id);
        const { read, take } = createPrefetch(far.laneStore, 0);
        network.set({ delay: 2000 });
        void read([], Promise.resolve());
        expect(await take(held(entries[0]!))).toEqual([]);
        network.set({});
        await read([], Promise.resolve());
        expect(await take(held(entries[1]!))).toEqual([]);
        await far.stop();
      });

    test('G5: holds few of the envelopes when they are large', async () => {
      const large = Array.from({ length: 3000 }, () => event('ann'));
      const entries = some(8, large);
      await addOneByOne(entries);
      const { read, take } = prefetch();
      await read([], Promise.resolve());
      expect(ids(await take(held(entries[0]!)))).toEqual(ids(entries.slice(1, 3)));
    });

    test('G5: holds few of the envelopes when they have many bytes', async () => {
      const long = Array.from({ length: 10 }, () =>
        attributes('ann', { set: { note: 'x'.repeat(150_000) } }),
      );
      const entries = some(8, long);
      await addOneByOne(entries);
      const { read, take } = prefetch();
      await read([], Promise.resolve());
      expect(ids(await take(held(entries[0]!)))).toEqual(ids(entries.slice(1, 4)));
    });
  });
});
