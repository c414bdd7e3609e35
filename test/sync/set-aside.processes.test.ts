import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, test } from 'vitest';
import { startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { leaveBehind } from '../setup/left-behind.ts';
import { createAsker, createWarehouse, INTEGRATION_KEY, integrate, whenEnded } from './warehouse.ts';

/** Starts a Postgres that accepts connections and never answers. */
async function startSilentServer() {
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  leaveBehind(async () => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, connections: () => connections };
}

test('a run that kills its process repeatedly is set aside; other runs finish', async () => {
  const warehouse = await createWarehouse();
  await warehouse.table('users', [
    { updated_at: '2026-01-01T00:00:00Z', external_id: 'ada', payload: { plan: 'pro' } },
  ]);
  const silent = await startSilentServer();
  const fleet = await startFleet('postgres', {
    ...{ edges: 0, workers: 1, syncs: 1, env: { INTEGRATION_KEY } },
  });
  const asker = await createAsker(fleet);
  const own = warehouse.definition('users');
  const good = await integrate(fleet, { kind: 'attributes', source: own }, warehouse.credentials);
  const lethal = await integrate(
    fleet,
    { kind: 'attributes', source: { ...own, port: silent.port } },
    warehouse.credentials,
  );
  const run = await asker.begin(lethal);
  /**
   * A process removes the row of a job shortly after the job has ended. A process killed before that leaves
   * the row.
   */
  const whenAttempts = (count: number) =>
    waitUntil(async () => (await fleet.pool.query('select from job_attempts')).rowCount === count, {
      what: `${count} attempts that are left`,
      deadline: 60_000,
    });
  const succeed = async () =>
    expect(await whenEnded(fleet, await asker.begin(good), 60_000)).toMatchObject({ status: 'success' });
  for (let kills = 1; kills <= 2; kills++) {
    await waitUntil(() => silent.connections() >= kills, { what: 'the run', deadline: 60_000 });
    await succeed();
    await whenAttempts(kills);
    await fleet.end(fleet.syncs[0]!);
    await fleet.startSync();
  }
  expect(await whenEnded(fleet, run, 60_000)).toMatchObject({
    status: 'error',
    message: expect.stringMatching(/^ended the process: /),
  });
  await whenAttempts(0);
  // A third kill, after the attempts of the run have been deleted.
  await fleet.end(fleet.syncs[0]!);
  await fleet.startSync();
  await succeed();
  expect(silent.connections()).toBe(2);
  await whenAttempts(0);
  await asker.stop();
  await fleet.stop();
  await warehouse.stop();
}, 240_000);
