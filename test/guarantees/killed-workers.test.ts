import { beforeAll, describe, expect, test } from 'vitest';
import { type Effects, expectInOrder, expectNoneLost, expectNoneTwice, settled } from './effects.ts';
import { backends, busyWorker, everyLaneMoves, startFleet } from './fleet.ts';
import { type Logged, startTraffic } from './traffic.ts';

/** Deaths in the middle of a batch, one after the other. */
const KILLS = 3;

/** A killed worker's jobs are another's within this time, in ms. */
const REPLACED_WITHIN = 10_000;

describe.each(backends)(
  'two edges, three workers, of which one is killed again and again; queue on %s',
  (backend) => {
    let log: Logged[];
    let effects: Effects;
    const gaps: number[] = [];

    beforeAll(async () => {
      const fleet = await startFleet(backend);
      const traffic = startTraffic(fleet);
      for (let kill = 0; kill < KILLS; kill++) {
        await traffic.more(100);
        await fleet.end(await busyWorker(fleet));
        const successor = fleet.startWorker();
        // The dead one's lanes included.
        gaps.push(await everyLaneMoves(fleet, REPLACED_WITHIN));
        await successor;
      }
      log = await traffic.stop();
      effects = await settled(fleet, log);
      expect(await fleet.fallen()).toEqual([]);
      return fleet.stop;
    });

    test('every request was answered with 201', () => {
      expect(log.filter(({ status }) => status !== 201)).toEqual([]);
    });

    test('G1: every acknowledged object is applied', () => expectNoneLost(log, effects));

    test('G2: no object is applied twice: rows, counts, sums and increments are exact', () =>
      expectNoneTwice(log, effects));

    test("G3: each user's operations take effect in the order in which they were accepted", () =>
      expectInOrder(log, effects));

    test('a killed worker is replaced within 10 s', () => {
      expect(gaps).toHaveLength(KILLS);
      for (const gap of gaps) expect(gap).toBeLessThan(REPLACED_WITHIN);
    });
  },
);
