import { beforeAll, describe, expect, test } from 'vitest';
import { type Effects, expectInOrder, expectNoneLost, expectNoneTwice, settled } from './effects.ts';
import { backends, busyWorker, type Fleet, OBSERVER, startFleet } from './fleet.ts';
import { type Logged, startTraffic } from './traffic.ts';

const ROUNDS = 4;

describe.each(backends)('Postgres terminates all connections under load; queue on %s', (backend) => {
  let log: Logged[];
  let effects: Effects;
  let fallen: string[];
  let terminated = 0;

  beforeAll(async () => {
    const fleet = await startFleet(backend);
    const traffic = startTraffic(fleet);
    for (let round = 0; round < ROUNDS; round++) {
      await traffic.more(40);
      await busyWorker(fleet);
      terminated += await terminateAll(fleet);
    }
    await traffic.more(40);
    log = await traffic.stop();
    effects = await settled(fleet, log);
    fallen = await fleet.fallen();
    return fleet.stop;
  });

  async function terminateAll({ pool }: Fleet): Promise<number> {
    const { rows } = await pool.query(
      `select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name <> $1`,
      [OBSERVER],
    );
    return rows.length;
  }

  test('every request is answered, with 201 or 503', () => {
    expect(terminated).toBeGreaterThan(ROUNDS);
    const statuses = new Set(log.map(({ status }) => status));
    statuses.delete(503);
    expect(statuses).toEqual(new Set([201]));
  });

  test('work goes on without a restart of ours', () => expect(fallen).toEqual([]));

  test('G1: every acknowledged object is applied', () => expectNoneLost(log, effects));

  test('G2: no object is applied twice', () => expectNoneTwice(log, effects));

  test("G3: each user's acknowledged operations take effect in their order", () =>
    expectInOrder(log, effects));
});
