import { setTimeout as sleep } from 'node:timers/promises';
import { busyWorker, everyLaneMoves, OBSERVER } from '../../../test/setup/fleet.ts';
import { waitUntil } from '../../../test/setup/wait-until.ts';
import type { Scenario } from '../scenario.ts';
import { beginTraffic } from '../traffic.ts';

export const stoppedPostgres: Scenario = {
  number: 8,
  fault:
    'every connection ended by Postgres; `kill -9` of a backend; immediate stop of the server, restarted after 5 s',
  backends: ['redis', 'postgres'],
  async run(scene) {
    const postgres = await scene.startPostgres();
    const { fleet, load, circles } = await beginTraffic(scene, {
      url: postgres.url,
      // Use the same environment as the scenarios of Redis, because the short forms share a fleet.
      ...(scene.backend === 'redis' && { env: { QUEUE_TIMEOUT_MS: '700' } }),
    });
    const beginning = Date.now();
    for (let round = 0; round < scene.choose(8, 4); round++) {
      await load.more(scene.choose(500, 50));
      await busyWorker(fleet);
      scene.say('ending every connection');
      await fleet.pool.query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and application_name <> $1`,
        [OBSERVER],
      );
    }
    await load.more(scene.choose(500, 50));
    const ended = Date.now();
    for (let round = 0; round < scene.choose(3, 1); round++) {
      await load.more(scene.choose(2000, 100));
      scene.say('kill -9 of a backend: Postgres restarts all of them');
      const backend = await waitUntil(
        async () => {
          const { rows } = await fleet.pool.query<{ pid: number }>(
            `select pid from pg_stat_activity
              where datname = current_database() and application_name like 'worker-%' limit 1`,
          );
          return rows[0]?.pid;
        },
        { what: 'a worker to be connected' },
      );
      process.kill(backend, 'SIGKILL');
      await back(round);
      await load.more(scene.choose(2000, 100));
      scene.say('immediate stop of the server');
      await postgres.stopImmediately();
      await sleep(scene.choose(5000, 1000));
      await postgres.startAgain();
      await back(round);
    }
    async function back(round: number): Promise<void> {
      const from = Date.now();
      for (;;) {
        try {
          await everyLaneMoves(fleet, 60_000);
          break;
        } catch (error) {
          if (Date.now() - from > 60_000) throw error;
          await sleep(100);
        }
      }
      scene.recovered(Date.now() - from);
      scene.say(`round ${round + 1}: back after ${Date.now() - from} ms as ${OBSERVER} sees it`);
    }
    const from = Date.now();
    const { drained } = await scene.waitUntilApplied(fleet, { load, circles });
    const odd = load.journal.requestsBut([201, 503], beginning, ended);
    scene.figure('requests with another answer than 201 and 503 while connections are ended', odd, '', {
      atMost: 0,
    });
    scene.figure('every lane moves after it is back', Math.max(...scene.recoveries) / 1000, 's', {
      atMost: 30,
    });
    scene.figure('drained', (drained - from) / 1000, 's', { atMost: 30 });
  },
};
