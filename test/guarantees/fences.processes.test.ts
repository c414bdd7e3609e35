import { beforeAll, describe, expect, test } from 'vitest';
import { lengthOf } from '../setup/length.ts';
import { eitherBackend, startFleet } from './fleet.ts';
import { expectEveryoneFound, type Moves, startMoves } from './movers.ts';

const KILLS = lengthOf({ short: 2, long: 20 });
const FREEZES = 1;

describe.each(eitherBackend)(
  'users change addresses while workers are killed, frozen and stopped; queue on %s',
  (backend) => {
    let fleet: Awaited<ReturnType<typeof startFleet>>;
    let moves: Moves;

    beforeAll(
      async () => {
        fleet = await startFleet(backend, { env: { LANES: '4' } });
        moves = startMoves(fleet);
        for (let kill = 0; kill < KILLS; kill++) {
          await moves.more(100);
          await fleet.end(fleet.workers[Math.floor(Math.random() * fleet.workers.length)]!);
          await fleet.startWorker();
        }
        for (let freeze = 0; freeze < FREEZES; freeze++) {
          await moves.more(100);
          const victim = fleet.workers[Math.floor(Math.random() * fleet.workers.length)]!;
          victim.kill('SIGSTOP');
          await moves.more(200);
          victim.kill('SIGCONT');
        }
        await moves.more(100);
        const { code, milliseconds } = await fleet.end(fleet.workers[0]!, 'SIGTERM');
        expect({ code, soon: milliseconds < 2500 }).toEqual({ code: 0, soon: true });
        await moves.more(100);
        await moves.cleanUp();
        expect(await fleet.fallen()).toEqual([]);
        return fleet.stop;
      },
      30_000 * KILLS + 300_000,
    );

    test('every request was answered with 201', () => expect(moves.failures).toEqual([]));

    test('G3: objects for a new email reach the user that has just received it, in order, once', () =>
      expectEveryoneFound(fleet, moves));

    test('lanes of several workers waited for each other', async () => {
      const { rows } = await fleet.pool.query(
        "select n_tup_ins::integer as arrivals from pg_stat_user_tables where relname = 'fence_arrivals'",
      );
      expect(rows[0].arrivals).toBeGreaterThan(0);
    });
  },
);
