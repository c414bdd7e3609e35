import { availableParallelism, loadavg } from 'node:os';
import { expect, onTestFinished, test } from 'vitest';
import { cannotMount, mountSmallDisk } from '../../tools/chaos/mounted.ts';
import { startOwnPostgres } from '../../tools/chaos/own-postgres.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { startFleetOn } from '../setup/fleet.ts';
import { CONSOLE, surfacesOf } from './surfaces.ts';

const REFUSED = /^Postgres answers but refuses writes \(since [^)]+\): .*No space left on device/;

/** Milliseconds until every place must name the full disk. Scaled by the load of the machine, at least 2 s. */
const deadline = () => 1000 * Math.max(2, (2 * loadavg()[0]!) / availableParallelism());

const events = Array.from({ length: 75 }, (_, index) => ({
  ...{ external_id: `user-${index}`, name: 'visited', time: '2026-11-27T00:00:00Z' },
  properties: { text: 'x'.repeat(500) },
}));

test.skipIf(cannotMount() !== undefined).each(eitherBackend)(
  'a full disk of Postgres is named within two seconds of the first refused write; queue in %s',
  async (backend) => {
    const disk = mountSmallDisk(480);
    const postgres = await startOwnPostgres(disk.folder);
    const fleet = await startFleetOn(postgres.url, backend, {
      ...{ edges: 1, workers: 1, env: { ...CONSOLE, LANES: '1', QUEUE_TIMEOUT_MS: '1000' } },
    });
    onTestFinished(fleet.stop);
    const board = await fleet.startBoard();
    const [edge, worker] = [fleet.edges[0]!, fleet.workers[0]!];
    const surfaces = surfacesOf(fleet, board);
    await surfaces.signIn();
    await surfaces.untilNormal();
    const send = () =>
      fetch(`http://127.0.0.1:${edge.port}/users/track`, {
        method: 'POST',
        headers: { authorization: `Bearer ${fleet.workspace.key}`, 'content-type': 'application/json' },
        body: JSON.stringify({ events }),
      });
    const isRefused = () =>
      [edge, worker].some(({ log }) =>
        log.some(({ err }) => (err as { code?: string } | undefined)?.code === '53100'),
      );

    disk.fill(64 * 1024);
    await waitUntil(
      async () => {
        await send();
        return isRefused();
      },
      { what: 'the first refused write', deadline: 60_000 },
    );
    const reasons = async () => (await Promise.all([edge, worker].map(surfaces.readyz))).flat();
    await waitUntil(async () => (await reasons()).some((one) => REFUSED.test(one)), {
      ...{ what: 'the reason in /readyz', deadline: deadline() },
      explain: async () => JSON.stringify([await reasons(), [edge, worker].map(({ log }) => log.slice(-3))]),
    });
    await surfaces.until('console', REFUSED, deadline());
    expect(await surfaces.console()).toEqual([expect.stringMatching(REFUSED)]);
    // A command opens a new connection, for which Postgres may have no space.
    for (const command of ['doctor', 'status'] as const)
      await surfaces.until(command, /No space left on device/);

    disk.clear();
    await surfaces.untilNormal();
    await send();
    const count = () => fleet.pool.query("select from profiles where external_id = 'user-74'");
    await waitUntil(async () => (await count()).rowCount === 1, { what: 'the objects', deadline: 60_000 });
  },
  240_000,
);
