import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { createFleet } from '../../src/board/fleet.ts';
import { readHistory, recordHistory } from '../../src/board/history.ts';
import { newId } from '../../src/platform/ids.ts';
import {
  type FleetRow,
  forgetFleetHistory,
  readFleetCounters,
  readFleetHistory,
  recordMinute,
} from '../../src/store/health.ts';
import { beatProcess, type Figures, forgetProcesses, leaveFleet } from '../../src/store/processes.ts';
import { createInstallation, type Installation, log } from './installation.ts';

const figures: Figures = {
  ...{
    address: null,
    lanes: [],
    missing: [],
    objects: 100,
    objectsPerSecond: 5,
    residentBytes: 1,
    loopBusy: 0,
  },
  ...{ refused: 10, refusedPerSecond: 1, marks: null, held: null },
};
const processOf = (name: 'web' | 'worker') =>
  ({ id: newId(), name, host: 'h', pid: 7, version: '1.0.0' }) as const;
const row: FleetRow = {
  ...{ accepted: 10, refused: 1, deadLetters: 2, applied: [3, 4], depth: [5, 0], oldestSeconds: [1.5, 0] },
  ...{ workers: 2, postgresMs: 1.5, redisMs: null },
};
const long = new Date(Date.now() - 10 * 86_400_000);

describe.each(['postgres', 'redis'] as const)('the history of a fleet whose queue is in %s', (kind) => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await createInstallation(kind);
  });
  afterAll(() => installation.stop());
  beforeEach(async () => {
    for (const table of ['fleet_history', 'processes', 'departed_processes'])
      await installation.database.pool.query(`delete from ${table}`);
  });

  test('two consoles write one row per minute from heartbeats and lanes', async () => {
    const { database, connection, config, laneQueues } = installation;
    const { pool } = database;
    await beatProcess(pool, processOf('web'), figures);
    await beatProcess(pool, processOf('worker'), figures);
    await laneQueues[1]!.add('envelope', {});
    const fleets = [1, 2].map(() => createFleet({ database, connection, config, lacking: () => [] }));
    const boards = fleets.map((fleet) => recordHistory(pool, fleet, log));
    const { postgres, redis } = await fleets[0]!.read();
    expect([postgres!.isReadOnly, redis?.writes]).toEqual([false, kind === 'redis' || undefined]);
    await Promise.all(boards.map((board) => board.now()));
    await Promise.all(boards.map((board) => board.now()));
    await Promise.all(boards.map((board) => board.stop()));
    const [first, ...others] = await readFleetHistory(pool, { minutes: 1, from: long });
    // The second call may fall into the next minute.
    expect(others.length).toBeLessThan(2);
    expect(first).toMatchObject({
      ...{
        accepted: 100,
        refused: 20,
        deadLetters: 0,
        applied: [0, 0, 0, 0],
        depth: [0, 1, 0, 0],
        workers: 1,
      },
    });
    expect(first!.oldestSeconds![0]).toBe(0);
    expect(first!.redisMs === null).toBe(kind === 'postgres');
    expect(await readFleetHistory(pool, { minutes: 15, from: long })).toHaveLength(1);
    await laneQueues[1]!.obliterate({ force: true });
    const points = await readHistory(pool, 'hour');
    expect(points.filter(({ workers }) => workers !== undefined).length).toBeGreaterThan(0);
  });
});

describe('rows of the history', () => {
  let installation: Installation;
  beforeAll(async () => {
    installation = await createInstallation('postgres');
  });
  afterAll(() => installation.stop());
  const query = (text: string, ...values: unknown[]) => installation.database.pool.query(text, values);
  beforeEach(async () => {
    for (const table of ['fleet_history', 'processes', 'departed_processes'])
      await query(`delete from ${table}`);
  });

  test('a longer interval keeps the latest counters, the deepest lanes and the fewest workers', async () => {
    const { pool } = installation.database;
    expect(await recordMinute(pool, row)).toBe(true);
    // Deleting the row simulates the next minute.
    const later = {
      ...row,
      accepted: 20,
      applied: [6, 4],
      depth: [1, 8],
      oldestSeconds: null,
      workers: 1,
      redisMs: 3,
    };
    await query('delete from fleet_history where minutes = 1');
    expect(await recordMinute(pool, later)).toBe(true);
    // The row exists already, so this one is ignored.
    await recordMinute(pool, { ...later, depth: [99, 99] });
    const [quarter] = await readFleetHistory(pool, { minutes: 15, from: long });
    const [hour] = await readFleetHistory(pool, { minutes: 60, from: long });
    expect({ ...hour, at: quarter!.at }).toEqual(quarter);
    expect(hour!.at.getTime() % 3_600_000).toBe(0);
    expect(quarter).toMatchObject({
      ...{ accepted: 20, applied: [6, 4], depth: [5, 8], oldestSeconds: [1.5, 0], workers: 1, redisMs: 3 },
    });
    expect(quarter!.at.getTime() % 900_000).toBe(0);
  });

  test('rows of 1 and 15 minutes are kept for a day, rows of an hour for eight days', async () => {
    const { pool } = installation.database;
    const add = (minutes: number, age: string) =>
      query(
        `insert into fleet_history (minutes, at, looked_at, accepted, refused, dead_letters, applied, workers, postgres_ms)
         values ($1, now() - $2::interval, now() - $2::interval, 0, 0, 0, '{0}', 0, 1)`,
        ...[minutes, age],
      );
    for (const age of ['23 hours', '26 hours', '9 days']) await add(1, age);
    for (const age of ['23 hours', '26 hours']) await add(15, age);
    for (const age of ['26 hours', '7 days', '9 days']) await add(60, age);
    await forgetFleetHistory(pool);
    expect(await readFleetHistory(pool, { minutes: 1, from: long })).toHaveLength(1);
    expect(await readFleetHistory(pool, { minutes: 15, from: long })).toHaveLength(1);
    expect(await readFleetHistory(pool, { minutes: 60, from: long })).toHaveLength(2);
  });

  test('the work of a process stays counted after it has stopped or was forgotten', async () => {
    const { pool } = installation.database;
    const [leaving, silent, present] = [processOf('web'), processOf('web'), processOf('web')];
    for (const one of [leaving, silent, present]) await beatProcess(pool, one, figures);
    await beatProcess(pool, processOf('worker'), figures);
    const counted = async () => {
      const { accepted, refused } = await readFleetCounters(pool, 2);
      return [accepted, refused];
    };
    expect(await counted()).toEqual([300, 40]);
    // Includes work since the last heartbeat.
    await leaveFleet(pool, leaving.id, { objects: 107, refused: 12 });
    expect(await counted()).toEqual([307, 42]);
    await query("update processes set seen_at = now() - interval '2 hours' where id = $1", silent.id);
    await forgetProcesses(pool);
    // A process that has already left, and another one with the same name.
    await leaveFleet(pool, leaving.id, { objects: 107, refused: 12 });
    await leaveFleet(pool, present.id, { objects: 100, refused: 10 });
    expect(await counted()).toEqual([307, 42]);
  });
});
