import { setTimeout as sleep } from 'node:timers/promises';
import { busyWorker, everyLaneMoves, type Fleet } from '../../../test/setup/fleet.ts';
import { type PgBouncerMode, startPgBouncer } from '../../../test/setup/pgbouncer.ts';
import type { Scenario } from '../scenario.ts';
import type { Scene } from '../scene.ts';
import { beginTraffic, throttle } from '../traffic.ts';

/**
 * Server connections in session mode, more than all processes of a scenario open, because each client keeps
 * its server connection.
 */
const SESSIONS = 80;

/**
 * Server connections in transaction mode, fewer than the processes open, so that transactions must share
 * them.
 */
const SHARED = 6;

/** Milliseconds between two exports of the same user. */
const EXPORT_MS = 100;

/** Milliseconds between two kills in the long form. */
const KILL_MS = 4000;

/** All processes connect to Postgres through PgBouncer. Workers are killed, and then PgBouncer itself. */
function behindPgBouncer(number: number, mode: Exclude<PgBouncerMode, 'statement'>): Scenario {
  return {
    number,
    fault: `\`kill -9\` of workers, and of PgBouncer, through which all processes reach Postgres in ${mode} mode`,
    backends: ['redis', 'postgres'],
    async run(scene) {
      const { url } = await scene.createDatabase();
      const poolSize = mode === 'session' ? SESSIONS : SHARED;
      const pooler = await startPgBouncer(url, { mode, poolSize });
      const env = {
        DATABASE_URL: pooler.url,
        ...(mode === 'transaction' && { DATABASE_DIRECT_URL: url }),
      };
      const traffic = await beginTraffic(scene, {
        ...{ url, env, edges: 1, workers: scene.choose(3, 1) },
      });
      const { fleet, load, circles } = traffic;
      if (!scene.short) await throttle(scene, traffic, 0.5);
      const exports = beginExports(fleet);
      const end = Date.now() + scene.choose(60_000, 0);
      let [kills, longest] = [0, 0];
      while (kills < scene.choose(3, 2) || Date.now() < end) {
        const from = Date.now();
        scene.say(`kill ${++kills}`);
        await fleet.end(await busyWorker(fleet));
        const successor = fleet.startWorker();
        const gap = await everyLaneMoves(fleet, 60_000);
        scene.recovered(gap);
        longest = Math.max(longest, gap);
        await successor;
        await sleep(scene.choose(Math.max(0, KILL_MS - (Date.now() - from)), 0));
      }
      await load.more(scene.choose(1000, 50));
      await exports.stop();
      scene.figure('kills', kills, '', { atLeast: scene.choose(3, 2) });
      scene.figure('longest until every lane moves again', longest / 1000, 's', { atMost: 10 });
      noteExports(scene, exports);
      scene.say('kill of PgBouncer');
      await pooler.restart();
      const gap = await everyLaneMoves(fleet, 60_000);
      scene.figure('until every lane moves behind a new PgBouncer', gap / 1000, 's', { atMost: 30 });
      await load.more(scene.choose(1000, 50));
      await scene.waitUntilApplied(fleet, { load, circles });
      // 503 is the correct response of a web process that gets no connection within a second.
      const refused = load.journal.statuses().get(503) ?? 0;
      scene.figure(
        'requests answered with neither 201 nor 503',
        load.journal.requestsBut(201) - refused,
        '',
        {
          atMost: 0,
        },
      );
      const { rows } = await fleet.pool.query('select count(*)::integer as letters from dead_letters');
      scene.figure('dead letters', rows[0].letters, '', { atMost: 0 });
    },
  };
}

export const transactionPooler = behindPgBouncer(37, 'transaction');
export const sessionPooler = behindPgBouncer(38, 'session');

interface Exports {
  statuses: Map<number, number>;
  stop(): Promise<void>;
}

/** Sends exports to the first web process one after the other, so that reads use the pooler as well. */
function beginExports({ edges, workspace }: Fleet): Exports {
  const statuses = new Map<number, number>();
  let stopped = false;
  const address = `http://127.0.0.1:${edges[0]!.port}/users/export/ids`;
  const running = (async () => {
    while (!stopped) {
      const { status } = await fetch(address, {
        method: 'POST',
        headers: { authorization: `Bearer ${workspace.key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ external_ids: ['somebody', 'person-1'], fields_to_export: ['external_id'] }),
      });
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
      await sleep(EXPORT_MS);
    }
  })();
  return {
    statuses,
    async stop() {
      stopped = true;
      await running;
    },
  };
}

function noteExports(scene: Scene, { statuses }: Exports): void {
  const total = [...statuses.values()].reduce((sum, count) => sum + count, 0);
  scene.notes.push(
    `exports by answer: ${[...statuses].map(([status, count]) => `${status}: ${count}`).join(', ')}`,
  );
  scene.figure('exports', total, '', { atLeast: 1 });
  // As for other requests, 503 is the correct response without a connection within a second.
  const correct = [200, 201, 503].reduce((sum, status) => sum + (statuses.get(status) ?? 0), 0);
  scene.figure('exports answered with neither 201 nor 503', total - correct, '', { atMost: 0 });
  scene.figure('exports answered with 201', (statuses.get(200) ?? 0) + (statuses.get(201) ?? 0), '', {
    atLeast: 1,
  });
}
