import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type Fleet, type Member, startFleet } from '../guarantees/fleet.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';
import { type StoreProxy, startProxy } from '../setup/proxy.ts';
import { CONSOLE, surfacesOf } from './surfaces.ts';

/** Seconds until every place must name the fault. */
const WITHIN = 1;

let fleet: Fleet;
let postgres: StoreProxy;
let surfaces: ReturnType<typeof surfacesOf>;
let processes: Member[];
beforeAll(async () => {
  fleet = await startFleet('redis', {
    edges: 0,
    workers: 0,
    env: { ...CONSOLE, LANES: '1', LOG_LEVEL: 'info' },
  });
  postgres = await startProxy(fleet.env.DATABASE_URL!);
  fleet.env.DATABASE_URL = postgres.url;
  processes = [await fleet.startEdge(), await fleet.startWorker(), await fleet.startBoard()];
  surfaces = surfacesOf(fleet, processes[2]!);
  await surfaces.signIn();
  return fleet.stop;
});

const away = {
  Redis: /^Redis does not answer(?: \([^)]+\))?\. Requests are refused with 503\./,
  Postgres: /^Postgres does not answer(?: \([^)]+\))?\. After one minute, requests are refused with 503\./,
};

interface Fault {
  fault: string;
  store: keyof typeof away;
  begin(): unknown;
  end(): Promise<unknown>;
}

const faults: Fault[] = [
  { fault: 'killed', store: 'Redis', begin: () => fleet.redis!.kill(), end: restartRedis },
  { fault: 'stopped', store: 'Postgres', begin: () => postgres.leave(), end: () => postgres.comeBack() },
  { fault: 'frozen', store: 'Redis', begin: () => process.kill(fleet.redis!.pid, 'SIGSTOP'), end: wakeRedis },
  { fault: 'frozen', store: 'Postgres', begin: () => postgres.standStill(), end: () => postgres.comeBack() },
];

async function restartRedis(): Promise<void> {
  fleet.redis = await startRedis({ port: fleet.redis!.port, dir: fleet.redis!.dir });
}

async function wakeRedis(): Promise<void> {
  process.kill(fleet.redis!.pid, 'SIGCONT');
}

describe.each(faults)('$fault $store', ({ store, begin, end }) => {
  test('the fault is named within a second, and no other problem is listed', async ({ annotate }) => {
    await surfaces.untilNormal();
    const lines = processes.map(({ log }) => log.length);
    let ended: Promise<unknown> | undefined;
    const recover = () => (ended ??= end());
    onTestFinished(async () => void (await recover()));
    const from = Date.now();
    await begin();
    const watched = surfaces.watch(8000);
    // `penstock status` needs Postgres, and names it in its error.
    const words = store === 'Postgres' ? { status: /cannot be reached|does not answer/ } : {};
    await surfaces.measure(away[store], { from, within: WITHIN, words, annotate });
    for (const process of processes) {
      expect(await surfaces.readyz(process)).toEqual([expect.stringMatching(away[store])]);
      const isLogged = () =>
        process.log
          .slice(lines[processes.indexOf(process)])
          .some(({ msg }) => String(msg).startsWith(`${store} does not answer`));
      await waitUntil(isLogged, { what: `the line of ${process.name}` });
    }
    for (const sentence of await watched) expect(sentence).toMatch(away[store]);
    await recover();
    // The console may name the store until it has seen the recovery, but no other problem.
    for (const sentence of await surfaces.watch(7000)) expect(sentence).toMatch(away[store]);
    await surfaces.untilNormal();
    await surfaces.ended(away[store]);
    const starts = processes[0]!.log.slice(lines[0]).filter(({ msg }) => msg === 'problem began');
    for (const { problem } of starts) expect(problem).toMatch(away[store]);
  }, 300_000);
});

test('a Postgres that became read-only is named within a second', async ({ annotate }) => {
  await surfaces.untilNormal();
  const { rows } = await fleet.pool.query('select current_database() as name');
  await fleet.pool.query(`alter database "${rows[0].name}" set default_transaction_read_only = on`);
  // The setting applies to new sessions.
  await postgres.leave();
  const from = Date.now();
  await postgres.comeBack();
  await surfaces.measure(/^Postgres is read-only: it refuses every write\.$/, {
    ...{ from, within: WITHIN, annotate },
  });
}, 240_000);
