import { beforeAll, describe, expect, test } from 'vitest';
import { type Effects, expectInOrder, expectNoneLost, expectNoneTwice, settled } from './effects.ts';
import { backends, busyWorker, startFleet } from './fleet.ts';
import { type Logged, startTraffic } from './traffic.ts';

/** Milliseconds after SIGTERM. */
const ENDED_WITHIN = 5000;

describe.each(backends)('SIGTERM to one process after the other under load; queue on %s', (backend) => {
  let log: Logged[];
  let effects: Effects;
  const workers: { code: number | null; milliseconds: number }[] = [];
  const edges: { code: number | null; milliseconds: number }[] = [];

  beforeAll(async () => {
    const fleet = await startFleet(backend);
    const traffic = startTraffic(fleet);
    for (let round = 0; round < 2; round++) {
      await traffic.more(50);
      workers.push(await fleet.end(await busyWorker(fleet), 'SIGTERM'));
      await fleet.startWorker();
    }
    for (const edge of [...fleet.edges]) {
      await traffic.more(50);
      edges.push(await fleet.end(edge, 'SIGTERM'));
      await fleet.startEdge();
    }
    await traffic.more(50);
    log = await traffic.stop();
    effects = await settled(fleet, log);
    expect(await fleet.fallen()).toEqual([]);
    return fleet.stop;
  });

  test('a worker ends its batch and exits 0 within 5 s', () => {
    expect(workers).toHaveLength(2);
    for (const { code, milliseconds } of workers) {
      expect(code).toBe(0);
      expect(milliseconds).toBeLessThan(ENDED_WITHIN);
    }
  });

  test('an edge answers what it was sent and exits 0 within 5 s', () => {
    expect(edges).toHaveLength(2);
    for (const { code, milliseconds } of edges) {
      expect(code).toBe(0);
      expect(milliseconds).toBeLessThan(ENDED_WITHIN);
    }
  });

  test('no request of a keep-alive client fails', () => {
    expect(log.filter(({ status }) => status !== 201)).toEqual([]);
  });

  test('G1: every acknowledged object is applied', () => expectNoneLost(log, effects));

  test('G2: no object is applied twice', () => expectNoneTwice(log, effects));

  test("G3: each user's operations take effect in the order in which they were accepted", () =>
    expectInOrder(log, effects));
});
