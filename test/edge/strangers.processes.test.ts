import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createStrangersLog, type Log } from '../../src/platform/log.ts';
import { permissions } from '../../src/schemas/permissions.ts';
import { newApiKey } from '../../src/store/credentials.ts';
import { type Fleet, type Member, startFleet } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';

let fleet: Fleet;
let edge: Member;
beforeAll(async () => {
  const env = { LOG_LEVEL: 'info', TRUST_PROXY_HOPS: '2' };
  fleet = await startFleet('postgres', { edges: 1, workers: 0, env });
  edge = fleet.edges[0]!;
});
afterAll(() => fleet?.stop());

const users = { external_ids: ['nobody'] };

/** Creates a key of the workspace that is valid only from these addresses. */
async function keyFrom(allowlist: string): Promise<string> {
  const { secret, identifier, hash } = newApiKey();
  await fleet.pool.query(
    `insert into api_keys (id, workspace_id, name, identifier, key_hash, permissions, ip_allowlist)
     values ($1, $2, 'listed', $3, $4, $5, $6)`,
    [uuidv7(), fleet.workspace.id, identifier, hash, permissions, [allowlist]],
  );
  return secret;
}

test('an allowlist refuses requests if the proxies do not report the client, even for the proxy', async () => {
  const key = await keyFrom('127.0.0.0/8');
  const call = async (forwarded?: string) => {
    const headers = forwarded === undefined ? {} : { 'x-forwarded-for': forwarded };
    return (await send(edge.port, { path: '/users/export/ids', key, json: users, headers })).status;
  };
  expect(await call()).toBe(403);
  expect(await call('127.0.0.1')).toBe(403);
  expect(await call('127.0.0.1, unknown, 10.0.0.1')).toBe(403);
  expect(await call('10.0.0.2, 10.0.0.1')).toBe(403);
  expect(await call('127.0.0.1, 10.0.0.1')).toBe(201);
  // A key without a list is valid from any address.
  const { key: open } = fleet.workspace;
  expect((await send(edge.port, { path: '/users/export/ids', key: open, json: users })).status).toBe(201);
});

test('refused requests without a valid key are logged at a bounded rate, all others completely', async () => {
  const lines = () => edge.log.filter(({ status }) => [400, 401, 404, 405].includes(status as number)).length;
  const started = performance.now();
  let calls = 0;
  const garbage = async () => {
    const socket = connect(edge.port, '127.0.0.1');
    socket.write('GARBAGE\r\n\r\n');
    await text(socket);
  };
  const forged = `/preferences/${'A'.repeat(100)}`;
  const bursts: (() => Promise<unknown>)[] = [
    () => send(edge.port, { path: '/users/track', key: `pk_${calls}`, json: {} }),
    () => send(edge.port, { path: '/users/export/ids', json: {} }),
    () => send(edge.port, { path: `/nowhere/${calls}` }),
    () => send(edge.port, { method: 'PUT', path: '/users/track' }),
    () => fetch(`http://127.0.0.1:${edge.port}${forged}`).then((answer) => answer.text()),
    garbage,
  ];
  for (; calls < 1800; calls += 60)
    await Promise.all(Array.from({ length: 60 }, (_, index) => bursts[index % bursts.length]!()));

  const { key } = fleet.workspace;
  const ids = new Set<string>();
  for (let index = 0; index < 20; index++) {
    const answer = await send(edge.port, { path: '/users/export/ids', key, json: users });
    ids.add(answer.headers.get('x-request-id')!);
  }
  const countLogged = () => edge.log.filter(({ request_id }) => ids.has(request_id as string)).length;
  await waitUntil(() => countLogged() === 20, { what: 'a line for each request of the key' });

  // One line for each period in which lines were omitted: on a slow machine the burst takes several.
  const droppedLines = () =>
    edge.log.reduce((sum, { left_out }) => sum + ((left_out as number | undefined) ?? 0), 0);
  await waitUntil(() => droppedLines() + lines() >= calls, {
    what: 'the count of what was omitted',
    deadline: 30_000,
  });
  const seconds = (performance.now() - started) / 1000;
  const written = lines();
  expect(written).toBeLessThanOrEqual(200 + 10 * seconds + 1);
  expect(droppedLines()).toBe(calls - written);
});

test('after a burst, requests without a key have lines of their own again', () => {
  let now = 0;
  const written: object[] = [];
  const write = (fields: object) => void written.push(fields);
  const strangers = createStrangersLog({ info: write, warn: write } as unknown as Log, () => now);
  for (let line = 0; line < 1000; line++) strangers.line('info', { line }, 'request');
  expect(written).toHaveLength(200);
  now += 1000;
  for (let line = 0; line < 1000; line++) strangers.line('info', { line }, 'request');
  expect(written).toHaveLength(210);
  void strangers.stop();
  expect(written.at(-1)).toEqual({ left_out: 1790 });
});
