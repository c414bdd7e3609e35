import { beforeAll, describe, expect, test } from 'vitest';
import { type Effects, expectInOrder, expectNoneLost, expectNoneTwice, settled } from './effects.ts';
import { backends, busyWorker, everyLaneMoves, startFleet } from './fleet.ts';
import { type Logged, startTraffic } from './traffic.ts';

const FREEZES = 2;

/** A frozen worker's jobs are another's within this time, in ms. */
const REPLACED_WITHIN = 10_000;

describe.each(backends)(
  'a worker freezes in the middle of a batch and thaws later; queue on %s',
  (backend) => {
    let log: Logged[];
    let effects: Effects;
    let fallen: string[];
    const gaps: number[] = [];

    beforeAll(async () => {
      const fleet = await startFleet(backend);
      const traffic = startTraffic(fleet);
      for (let freeze = 0; freeze < FREEZES; freeze++) {
        await traffic.more(50);
        const victim = await busyWorker(fleet);
        victim.kill('SIGSTOP');
        gaps.push(await everyLaneMoves(fleet, REPLACED_WITHIN));
        victim.kill('SIGCONT');
      }
      await traffic.more(50);
      log = await traffic.stop();
      effects = await settled(fleet, log);
      fallen = await fleet.fallen();
      return fleet.stop;
    });

    test('the others take over within 10 s, and it goes on by itself', () => {
      expect(gaps).toHaveLength(FREEZES);
      expect(fallen).toEqual([]);
    });

    test('G1: every acknowledged object is applied', () => expectNoneLost(log, effects));

    test('G2: what the frozen worker had in hand is not applied twice', () => expectNoneTwice(log, effects));

    test("G3: each user's operations take effect in the order in which they were accepted", () =>
      expectInOrder(log, effects));
  },
);
