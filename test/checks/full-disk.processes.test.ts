import { expect, onTestFinished, test } from 'vitest';
import { cannotMount, mountSmallDisk } from '../../tools/chaos/mounted.ts';
import { startOwnPostgres } from '../../tools/chaos/own-postgres.ts';
import { eitherBackend } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { startFleetOn } from '../setup/fleet.ts';
import { CONSOLE, slack, surfacesOf } from './surfaces.ts';

const REFUSED = /^Postgres answers but refuses writes \(since [^)]+\): .*No space left on device/;

/** A command opens a new connection, for which Postgres may have no space. Its sentence is then the error. */
const NO_SPACE = /No space left on device/;

const events = Array.from({ length: 75 }, (_, index) => ({
  ...{ external_id: `user-${index}`, name: 'visited', time: '2026-11-27T00:00:00Z' },
  properties: { text: 'x'.repeat(500) },
}));

test.skipIf(cannotMount() !== undefined).for(eitherBackend)(
  'a full disk of Postgres is named within a second; queue in %s',
  { timeout: 240_000 },
  async (backend, { annotate }) => {
    const disk = mountSmallDisk(480);
    const postgres = await startOwnPostgres(disk.folder);
    const fleet = await startFleetOn(postgres.url, backend, {
      ...{
        edges: 1,
        workers: 1,
        env: { ...CONSOLE, LANES: '1', QUEUE_TIMEOUT_MS: '1000', LOG_LEVEL: 'info' },
      },
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
    const from = Date.now();
    disk.fill(64 * 1024);
    let isNamed = false;
    // Only a write that needs another page meets the full disk.
    const sending = (async () => {
      while (!isNamed) await send();
    })();
    try {
      const words = { doctor: NO_SPACE, status: NO_SPACE };
      const ofWorker = waitUntil(
        async () =>
          (await surfaces.readyz(worker)).some((one) => REFUSED.test(one)) ? Date.now() : undefined,
        { what: '/readyz of the worker', deadline: 90_000, fleeting: true },
      );
      const allowed = slack();
      const measured = await surfaces.measure(REFUSED, { from, within: 60, words, annotate });
      // The worker meets the full disk with its first refused write.
      const { rows } = await fleet.pool.query(
        "select min(refusal ->> 'since') as since from processes where refusal is not null",
      );
      const first = (Date.parse(rows[0].since) - from) / 1000;
      const inAll = { ...measured, worker: ((await ofWorker) - from) / 1000 };
      const after = Object.entries(inAll).map(([place, seconds]) => [place, seconds - first] as const);
      await annotate(`after the first refused write: ${JSON.stringify(after)}`);
      for (const [place, seconds] of after)
        expect(seconds, place).toBeLessThanOrEqual(1 + Math.max(allowed, slack()));
    } finally {
      isNamed = true;
      await sending;
    }
    expect(await surfaces.console()).toEqual([expect.stringMatching(REFUSED)]);

    disk.clear();
    await surfaces.untilNormal();
    await send();
    const count = () => fleet.pool.query("select from profiles where external_id = 'user-74'");
    await waitUntil(async () => (await count()).rowCount === 1, { what: 'the objects', deadline: 60_000 });
  },
);
