import { beforeAll, describe, expect, test } from 'vitest';
import { waitUntil } from '../setup/fixtures.ts';
import { type Effects, expectInOrder, expectNoneLost, expectNoneTwice, settled } from './effects.ts';
import { backends, startFleet } from './fleet.ts';
import { type Logged, startTraffic } from './traffic.ts';

const KILLS = 3;

describe.each(backends)('an edge is killed in mid-request, again and again; queue on %s', (backend) => {
  let log: Logged[];
  let effects: Effects;

  beforeAll(async () => {
    const fleet = await startFleet(backend);
    const traffic = startTraffic(fleet);
    for (let kill = 0; kill < KILLS; kill++) {
      await traffic.more(50);
      const victim = fleet.edges[0]!;
      await waitUntil(() => traffic.inFlight(victim.name) > 0, { what: 'a request in flight' });
      await fleet.end(victim);
      await fleet.startEdge(victim.port);
    }
    await traffic.more(50);
    log = await traffic.stop();
    effects = await settled(fleet, log);
    expect(await fleet.fallen()).toEqual([]);
    return fleet.stop;
  });

  test('a client sees 201 or a broken connection, and nothing else', () => {
    expect(new Set(log.map(({ status }) => status))).toEqual(new Set([201, undefined]));
  });

  test('G1: only requests without an answer may be missing', () => expectNoneLost(log, effects));

  test('G2: nothing is applied twice, and each object of an unanswered request once or not at all', () =>
    expectNoneTwice(log, effects));

  test("G3: each user's acknowledged operations take effect in their order", () =>
    expectInOrder(log, effects));
});
