import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import type { QueueConnection } from '../../src/queue/connection.ts';
import { readLaneDepths } from '../../src/queue/depth.ts';
import { createLaneProducer } from '../../src/queue/lane-producer.ts';
import { watchOldest } from '../../src/queue/oldest.ts';
import { createScene, LANES, log, type Scene } from './scene.ts';

const AHEAD_MS = 600_000;

const setClock = (aheadMs: number) => vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + aheadMs });

describe.each<QueueConnection['kind']>(['redis', 'postgres'])('queue in %s', (kind) => {
  let scene: Scene;
  beforeAll(async () => {
    scene = await createScene(kind);
  });
  afterEach(() => void vi.useRealTimers());
  afterAll(() => scene.stop());

  test.each([
    ['reads', 0, AHEAD_MS],
    ['adds', -AHEAD_MS, 0],
  ])(
    'a process that %s an envelope with a wrong clock reports the true age of the envelope',
    async (_, adds, reads) => {
      setClock(adds);
      const producer = createLaneProducer(scene.connection, { timeout: scene.config.QUEUE_TIMEOUT_MS, log });
      await producer.add([{ lane: 1, id: newId(), envelope: { requests: [], objects: [] } }]);
      vi.useRealTimers();
      setClock(reads);
      const oldest = watchOldest(scene.connection.laneStore, { lanes: LANES, maxAgeMs: 60_000, log });
      await oldest.check();
      expect(oldest.tooOld()).toEqual([]);
      expect(oldest.ages()![1]!.seconds).toBeLessThan(60);
      expect((await readLaneDepths(scene.connection.laneStore, LANES))[1]).toMatchObject({ depth: 1 });
      expect((await readLaneDepths(scene.connection.laneStore, LANES))[1]!.oldestSeconds).toBeLessThan(60);
      await oldest.stop();
      await producer.stop();
      await scene.queues[1]!.drain();
    },
  );
});
