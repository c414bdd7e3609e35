import { v7 as uuidv7 } from 'uuid';
import { beforeAll, describe, expect, test } from 'vitest';
import { connectProducer } from '../../src/queue/connection.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { pack } from '../../src/queue/pack.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { bridge, event, LANES, request } from './named-objects.ts';
import { createScene, log, type Scene } from './scene.ts';

const PRODUCERS = 6;
const FLUSHES = 40;

describe.each(['redis', 'postgres'] as const)('the queue lives in %s', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await createScene(kind, { QUEUE_TIMEOUT_MS: '20000' });
    return scene.stop;
  });

  /** Ids of the fences of each lane, in the order in which a worker takes them. */
  async function fencesByLane(): Promise<string[][]> {
    const lanes = await Promise.all(scene.queues.map((_, lane) => scene.envelopesOf(lane)));
    return lanes.map((envelopes) => envelopes.flatMap(({ fence }) => (fence ? [fence.id] : [])));
  }

  test('G3: fences added concurrently by several web processes have one order in all lanes', async () => {
    await scene.begin();
    const edges = Array.from({ length: PRODUCERS }, () => {
      const connection = connectProducer(scene.config, scene.config.DATABASE_URL);
      return { connection, producer: createLaneProducer(connection, { timeout: 20_000, log }) };
    });
    await waitUntil(() => edges.every(({ connection }) => connection.ready()), { what: 'the edges' });
    await Promise.all(
      edges.map(async ({ producer }, number) => {
        for (let flush = 0; flush < FLUSHES; flush++) {
          // While a server loads its scripts again, it must not get one entry of a fence before the others.
          if (number === 0 && flush % 5 === 0) await scene.operator?.script('FLUSH');
          const first = (number + flush) % LANES;
          const second = (first + 1 + (flush % (LANES - 1))) % LANES;
          const objects = [event((flush + 1) % LANES), bridge(first, second), event(flush % LANES)];
          await producer.add(pack([request(...objects)], LANES, 1000));
        }
      }),
    );
    const lanes = await fencesByLane();
    expect(new Set(lanes.flat()).size).toBe(PRODUCERS * FLUSHES);
    for (const [index, one] of lanes.entries()) {
      for (const other of lanes.slice(index + 1)) {
        const shared = one.filter((id) => other.includes(id));
        expect(shared.length).toBeGreaterThan(0);
        expect(other.filter((id) => one.includes(id))).toEqual(shared);
      }
    }
    for (const { connection, producer } of edges) {
      await producer.stop();
      await connection.stop();
    }
  });

  test('G2: a fence that is added twice is in each of its lanes once', async () => {
    await scene.begin();
    const producer = createLaneProducer(scene.connection, { timeout: 20_000, log });
    const entries = pack([request(bridge(0, 1))], LANES, 1000);
    await producer.add(entries);
    await producer.add(entries);
    await producer.stop();
    expect((await fencesByLane()).map(({ length }) => length)).toEqual([1, 1, 0, 0]);
  });

  test('an entry of a fence is a job named fence', async () => {
    await scene.begin();
    const producer = createLaneProducer(scene.connection, { timeout: 20_000, log });
    await producer.add([
      ...pack([request(bridge(0, 1))], LANES, 1000),
      { lane: 0, id: uuidv7(), envelope: { requests: [], objects: [] } },
    ]);
    await producer.stop();
    const names = await Promise.all(
      scene.queues.map(async (queue) =>
        (await queue.getJobs(['waiting'], 0, -1, true)).map(({ name }) => name),
      ),
    );
    expect(names).toEqual([['fence', 'envelope'], ['fence'], [], []]);
  });
});
