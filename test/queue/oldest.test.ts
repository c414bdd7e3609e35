import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { envelopeId } from '../../src/queue/lanes.ts';
import { watchOldest } from '../../src/queue/oldest.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { createScene, LANES, log, type Scene } from './scene.ts';

const LANE = 1;
const MAX_AGE_MS = 1000;

describe.each<QueueConnection['kind']>(['redis', 'postgres'])('queue in %s', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await createScene(kind);
  });
  afterAll(() => scene.stop());

  test("G8: a workspace's backlog is not stuck while it is applied, unless others wait after it", async () => {
    const { connection, config, queues } = scene;
    const [noisy, quiet] = [uuidv7(), uuidv7()];
    const producer = createLaneProducer(connection, { timeout: config.QUEUE_TIMEOUT_MS, log });
    const add = async (workspace_id: string) => {
      const id = envelopeId([workspace_id]);
      const requests = [{ request_id: uuidv7(), workspace_id, accepted_at: 'now', count: 0 }];
      await producer.add([{ lane: LANE, id, envelope: { requests, objects: [] } }]);
      return id;
    };
    const backlog: string[] = [];
    for (let number = 0; number < 30; number++) backlog.push(await add(noisy));
    const oldest = watchOldest(connection.laneStore, { lanes: LANES, maxAgeMs: MAX_AGE_MS, log });
    const readOldest = async () => {
      await oldest.check();
      return oldest.tooOld();
    };
    const ageOf = () => oldest.ages()![LANE]!.seconds;
    // Removes the head of the lane, as a worker does after applying it.
    const apply = async () => queues[LANE]!.remove(backlog.shift()!);
    let last = performance.now();
    // Slow enough that the backlog outlasts the test, and often enough that no head becomes stuck.
    const applySlowly = async () => {
      if (performance.now() - last < MAX_AGE_MS / 5) return;
      last = performance.now();
      await apply();
    };
    await waitUntil(
      async () => {
        await applySlowly();
        expect(await readOldest()).toEqual([]);
        return ageOf() > (1.2 * MAX_AGE_MS) / 1000;
      },
      { what: 'an old backlog' },
    );
    expect(oldest.ages()![LANE]!.stuckSeconds).toBeLessThan(MAX_AGE_MS / 1000);
    const waits = await add(quiet);
    await waitUntil(
      async () => {
        await applySlowly();
        return (await readOldest()).length > 0;
      },
      { what: 'the envelope behind the backlog' },
    );
    const [stuck] = oldest.tooOld();
    expect(stuck).toMatchObject({ lane: LANE, envelope: waits });
    expect(oldest.ages()![LANE]).toMatchObject({ stuckSeconds: stuck!.seconds });
    await queues[LANE]!.remove(waits);
    await apply();
    expect(await readOldest()).toEqual([]);
    const [head] = backlog;
    await waitUntil(async () => (await readOldest()).length > 0, { what: 'a standstill of the backlog' });
    expect(oldest.tooOld()).toMatchObject([{ lane: LANE, envelope: head }]);
    await oldest.stop();
    await producer.stop();
  });
});
