import { availableParallelism, loadavg } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { type Fleet, type Member, startFleet } from '../guarantees/fleet.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';
import { type StoreProxy, startProxy } from '../setup/proxy.ts';
import { CONSOLE, surfacesOf } from './surfaces.ts';

/** Milliseconds until every place must name an unreachable store. Scaled by the load of the machine, at least 2 s. */
const timeLimit = () => 1000 * Math.max(2, (2 * loadavg()[0]!) / availableParallelism());

let fleet: Fleet;
let postgres: StoreProxy;
let surfaces: ReturnType<typeof surfacesOf>;
let processes: Member[];
beforeAll(async () => {
  fleet = await startFleet('redis', { edges: 0, workers: 0, env: { ...CONSOLE, LANES: '1' } });
  postgres = await startProxy(fleet.env.DATABASE_URL!);
  fleet.env.DATABASE_URL = postgres.url;
  processes = [await fleet.startEdge(), await fleet.startWorker(), await fleet.startBoard()];
  surfaces = surfacesOf(fleet, processes[2]!);
  await surfaces.signIn();
  return fleet.stop;
});

/**
 * Reads the console repeatedly.
 * @returns every sentence that it listed
 */
async function watch(milliseconds: number, until?: RegExp) {
  const seen = new Set<string>();
  const begun = performance.now();
  let result: number | undefined;
  while (performance.now() - begun < milliseconds) {
    for (const sentence of await surfaces.console()) {
      seen.add(sentence);
      if (until?.test(sentence)) result ??= performance.now() - begun;
    }
    if (until && result !== undefined) break;
    await sleep(40);
  }
  return { seen: [...seen], result };
}

const away = {
  Redis: /^Redis does not answer \(since [^)]+\)\. Requests are refused with 503/,
  Postgres: /^Postgres does not answer \(since [^)]+\)\. /,
};

interface Fault {
  fault: string;
  store: keyof typeof away;
  begin(): unknown;
  end(): Promise<unknown>;
}

const faults: Fault[] = [
  { fault: 'killed', store: 'Redis', begin: () => fleet.redis!.kill(), end: restartRedis },
  { fault: 'frozen', store: 'Redis', begin: () => process.kill(fleet.redis!.pid, 'SIGSTOP'), end: wakeRedis },
  { fault: 'stopped', store: 'Postgres', begin: () => postgres.leave(), end: () => postgres.comeBack() },
  { fault: 'frozen', store: 'Postgres', begin: () => postgres.standStill(), end: () => postgres.comeBack() },
];

async function restartRedis(): Promise<void> {
  fleet.redis = await startRedis({ port: fleet.redis!.port, dir: fleet.redis!.dir });
}

async function wakeRedis(): Promise<void> {
  process.kill(fleet.redis!.pid, 'SIGCONT');
}

describe.each(faults)('$fault $store', ({ store, begin, end }) => {
  test('the fault is named within two seconds, and no other problem is listed', async () => {
    await surfaces.untilNormal();
    const lines = processes.map(({ log }) => log.length);
    let ended: Promise<unknown> | undefined;
    const recover = () => (ended ??= end());
    onTestFinished(async () => void (await recover()));
    await begin();
    const { seen, result } = await watch(60_000, away[store]);
    expect(result, seen.join()).toBeLessThan(timeLimit());
    for (const process of processes)
      await waitUntil(async () => (await surfaces.readyz(process)).some((one) => away[store].test(one)), {
        ...{ what: `${process.name}: the reason in /readyz`, deadline: timeLimit() },
      });
    await Promise.all(
      processes.map(({ log, name }, at) =>
        waitUntil(
          () => log.slice(lines[at]).some(({ msg }) => String(msg).startsWith(`${store} does not answer`)),
          {
            ...{ what: `the line of ${name}`, deadline: timeLimit() },
          },
        ),
      ),
    );
    const during = await watch(4000);
    for (const sentence of [...seen, ...during.seen]) expect(sentence).toMatch(away[store]);
    if (store === 'Redis') await surfaces.until('status', /^Redis does not answer/);
    else
      expect(await surfaces.status()).toEqual([expect.stringMatching(/cannot be reached|does not answer/)]);
    expect(await surfaces.doctor()).toContainEqual(
      expect.stringMatching(new RegExp(`^${store} does not answer`)),
    );
    await recover();
    // The console may name the store until it has seen the recovery, but no other problem.
    const after = await watch(7000);
    for (const sentence of after.seen) expect(sentence).toMatch(away[store]);
    await surfaces.untilNormal();
  }, 300_000);
});

test('a Postgres that became read-only is named within two seconds', async () => {
  await surfaces.untilNormal();
  const { rows } = await fleet.pool.query('select current_database() as name');
  await fleet.pool.query(`alter database "${rows[0].name}" set default_transaction_read_only = on`);
  await postgres.leave();
  await postgres.comeBack();
  const { seen, result } = await watch(60_000, /^Postgres is read-only/);
  expect(result, seen.join()).toBeLessThan(timeLimit());
  for (const one of ['doctor', 'status'] as const)
    await surfaces.until(one, /^Postgres is read-only/, 30_000);
}, 240_000);
