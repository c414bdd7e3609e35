import { randomBytes } from 'node:crypto';
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from 'vitest';
import { encryptCredentials, keysOf } from '../../src/integrations/source.ts';
import { newId } from '../../src/platform/ids.ts';
import { createDestination } from '../../src/store/stream-destinations.ts';
import { startFleet } from '../guarantees/fleet.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { leaveBehind } from '../setup/left-behind.ts';
import { applyBatch } from '../workers/apply-batch.ts';
import { deliver, event, openPool } from '../workers/batch.ts';
import { inBucket, messagesOf } from './file-scene.ts';

const INTEGRATION_KEY = randomBytes(32).toString('base64');
const USERS = 10;
const EVENTS = 30;

/** Starts a proxy in front of a bucket that can discard answers; `lost` counts them. */
async function startGate() {
  const gate = { isShut: false, lost: 0, endpoint: '' };
  const server = createServer((requested, answer) => {
    const { host, hostname, port } = new URL(gate.endpoint);
    const { method, url: path, headers } = requested;
    const onward = request({ hostname, port, method, path, headers: { ...headers, host } }, (response) => {
      if (gate.isShut && method === 'PUT') {
        gate.lost += 1;
        return void response.resume();
      }
      answer.writeHead(response.statusCode!, response.headers);
      response.pipe(answer);
    });
    onward.on('error', () => answer.destroy());
    requested.pipe(onward);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  leaveBehind(() => {
    server.closeAllConnections();
    server.close();
  });
  const address = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { gate, address };
}

test('a sync process killed during a put loses and duplicates nothing: the name is the same', async () => {
  const { gate, address } = await startGate();
  const target = await inBucket(async (endpoint) => {
    gate.endpoint = endpoint;
    return address;
  });
  const fleet = await startFleet('postgres', { edges: 0, workers: 0, syncs: 1, env: { INTEGRATION_KEY } });
  const pool = openPool(fleet.env.DATABASE_URL!);
  const id = newId();
  await createDestination(pool, {
    ...{ workspaceId: fleet.workspace.id, id, name: 'lake', kind: 'files', gatherMs: 1 },
    settings: { ...target.settings, format: 'ndjson' },
    secret: encryptCredentials(target.secret!, id, keysOf(INTEGRATION_KEY)),
  });
  const round = (index: number) => {
    const objects = Array.from({ length: USERS }, (_, user) => event(`user-${user}`, `event-${index}`));
    return applyBatch(pool, [deliver(fleet.workspace, objects)]);
  };
  for (let index = 0; index < EVENTS; index++) {
    if (index === EVENTS / 2) {
      await waitUntil(async () => (await target.files()).length > 0, { what: 'the first file' });
      gate.isShut = true;
    }
    await round(index);
  }
  await waitUntil(() => gate.lost > 0, { what: 'a file that is there and was not told of' });
  await fleet.end(fleet.syncs[0]!);
  const before = await target.files();
  gate.isShut = false;
  await pool.query('update stream_destinations set leased_until = now()');
  await fleet.startSync();
  await waitUntil(
    async () => {
      const { rows } = await pool.query('select delivered from stream_destinations');
      return Number(rows[0].delivered) === EVENTS * USERS;
    },
    { what: 'every message' },
  );
  const files = await target.files();
  const messages = messagesOf(files);
  expect(messages.length).toBe(EVENTS * USERS);
  expect(new Set(messages.map((message) => message.id)).size).toBe(EVENTS * USERS);
  expect(files.slice(0, before.length)).toEqual(before);
  for (let user = 0; user < USERS; user++) {
    const own = messages.filter((message) => message.user!.external_id === `user-${user}`);
    expect(own.map(({ data }) => data.name)).toEqual(Array.from({ length: EVENTS }, (_, n) => `event-${n}`));
  }
  await pool.end();
  await fleet.stop();
});
