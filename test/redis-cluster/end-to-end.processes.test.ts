import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Finding } from '../../src/admin/doctor/findings.ts';
import type { Json } from '../../src/profile/json.ts';
import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { createVisitor } from '../board/browser-session.ts';
import { type Fleet, startFleet, statusOf } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { temporaryFolder, waitUntil } from '../setup/fixtures.ts';
import { createIntegration } from '../setup/integrations.ts';
import { LANES_KEY, startRedisCluster, type TestCluster } from '../setup/redis-cluster.ts';
import { createGroup } from '../setup/workspace.ts';

const time = '2026-01-31T12:00:00.000Z';
const BOARD_PASSWORD = 'of the console';
const folder = temporaryFolder('penstock-cluster-');

let cluster: TestCluster;
let fleet: Fleet;
beforeAll(async () => {
  cluster = await startRedisCluster({ primaries: 3, replicas: 1 });
  fleet = await startFleet('redis', {
    redis: cluster.nodes[0],
    ...{ edges: 1, workers: 2, syncs: 1 },
    env: { ...cluster.env, BOARD_PASSWORD, REDIS_WAIT_REPLICAS: '1' },
  });
});
afterAll(async () => {
  await fleet.stop();
  await cluster.stop();
});

function call(path: string, json?: Json, method = 'POST') {
  const { key } = fleet.workspace;
  return send(fleet.edges[0]!.port, { method, path, key, json });
}

const users = async (...external_ids: string[]) =>
  (await call('/users/export/ids', { external_ids })).body.users as Record<string, Json>[];

async function shows(id: string, expected: object): Promise<void> {
  const check = async () => {
    expect(await users(id)).toEqual([expect.objectContaining(expected)]);
    return true;
  };
  await waitUntil(check, { what: `${id} to show ${JSON.stringify(expected)}` });
}

test('G1, G3: tracked objects take effect in order on a cluster, over all lanes', async () => {
  const names = Array.from({ length: 40 }, (_, index) => `user-${index}`);
  for (const step of [1, 2, 3]) {
    const attributes = names.map((external_id) => ({ external_id, step, [`step_${step}`]: true }));
    const events = names.map((external_id) => ({ external_id, name: 'seen', time }));
    expect((await call('/users/track', { attributes, events })).status).toBe(201);
  }
  for (const name of names)
    await shows(name, {
      custom_attributes: { step: 3, step_1: true, step_2: true, step_3: true },
      custom_events: [expect.objectContaining({ name: 'seen', count: 3 })],
    });
  const keys = await cluster.call(await cluster.primaryOf(LANES_KEY), 'KEYS', '{penstock}:lane-*:meta');
  const lanes = new Set((keys as string[]).map((key) => key.split(':')[1]));
  expect(lanes.size).toBe(4);
});

test('G3: a merge waits for the lanes of both of its users', async () => {
  const both = ['kept', 'merged'].map((external_id) => ({ external_id, name: 'bought', time }));
  await call('/users/track', { events: both });
  const update = {
    identifier_to_merge: { external_id: 'merged' },
    identifier_to_keep: { external_id: 'kept' },
  };
  expect((await call('/users/merge', { merge_updates: [update] })).status).toBe(202);
  await shows('kept', { custom_events: [expect.objectContaining({ name: 'bought', count: 2 })] });
  expect(await users('merged')).toEqual([]);
});

test('a subscription state is set when its answer arrives, and a deleted user is gone', async () => {
  const group = await createGroup(fleet.pool, fleet.workspace.id, 'email');
  await call('/users/track', { attributes: [{ external_id: 'ann', email: 'ann@example.com' }] });
  const set = { subscription_group_id: group, subscription_state: 'subscribed', external_id: ['ann'] };
  expect((await call('/subscription/status/set', set)).status).toBe(201);
  const query = new URLSearchParams({ subscription_group_id: group, external_id: 'ann' });
  const { body } = await call(`/subscription/status/get?${query}`, undefined, 'GET');
  expect(body.status).toEqual({ ann: 'Subscribed' });
  expect((await call('/users/delete', { external_ids: ['ann'] })).status).toBe(201);
  await waitUntil(async () => (await users('ann')).length === 0, { what: 'the deletion' });
});

test('an Idempotency-Key makes two requests take effect once', async () => {
  const json = { events: [{ external_id: 'ida', name: 'paid', time }] };
  const request = {
    path: '/users/track',
    key: fleet.workspace.key,
    json,
    headers: { 'idempotency-key': 'one' },
  };
  const answers = await Promise.all([1, 2].map(() => send(fleet.edges[0]!.port, request)));
  expect(answers.map(({ status }) => status)).toEqual([201, 201]);
  await shows('ida', { custom_events: [expect.objectContaining({ name: 'paid', count: 1 })] });
});

test('a sync that the API requests runs to its end', async () => {
  const dir = path.join(folder, 'rows');
  mkdirSync(dir);
  writeFileSync(path.join(dir, 'one.csv'), `EXTERNAL_ID,PAYLOAD,UPDATED_AT\nsue,"{""level"":7}",${time}\n`);
  const source = { type: 'folder', path: dir, format: 'csv' } as const;
  const id = await createIntegration(fleet.pool, fleet.workspace.id, { source });
  expect((await call(`/cdi/integrations/${id}/sync`)).status).toBe(202);
  await shows('sue', { custom_attributes: { level: 7 } });
});

test('a rate limit is counted in the cluster, each bucket in a slot of its own', async () => {
  await fleet.pool.query(
    `insert into rate_limits (workspace_id, bucket, requests, window_seconds) values ($1, 'events.list', 3, 60)`,
    [fleet.workspace.id],
  );
  const statuses = async () => (await call('/events/list', undefined, 'GET')).status;
  await waitUntil(async () => (await statuses()) === 429, { what: 'the limit' });
  const buckets = await Promise.all(
    cluster.nodes.slice(0, 3).map((_, index) => cluster.call(index, 'KEYS', 'penstock:limit:*')),
  );
  expect(buckets.flat().length).toBeGreaterThan(1);
});

test('every process is ready, and doctor warns only about the missing maxmemory', async () => {
  const all = [...fleet.edges, ...fleet.workers, ...fleet.syncs];
  expect(await Promise.all(all.map(({ port }) => statusOf(port, '/readyz')))).toEqual(all.map(() => 200));
  const { stdout } = await spawnPenstock(['doctor', '--json'], fleet.env);
  const { findings } = JSON.parse(stdout) as { findings: Finding[] };
  const ofRedis = findings.filter(({ check }) => check === 'redis');
  // A test's Redis has no maxmemory, so doctor has this one remark, about the server with the lanes.
  const { port } = cluster.nodes[await cluster.primaryOf(LANES_KEY)]!;
  expect(ofRedis.map(({ level, finding }) => `${level} ${finding}`)).toEqual([
    expect.stringMatching(`^warning 127.0.0.1:${port}: maxmemory is not set`),
  ]);
  expect(findings.find(({ check }) => check === 'replicas')).toMatchObject({ level: 'ok' });
  const status = await spawnPenstock(['status', '--json'], fleet.env);
  expect(JSON.parse(status.stdout)).toBeTruthy();
});

test('the console and its board show the lanes of a cluster', async () => {
  const board = await fleet.startBoard();
  const visitor = createVisitor({ url: `http://127.0.0.1:${board.port}` });
  await visitor.signIn('admin', BOARD_PASSWORD);
  const answer = await visitor.get('/queues/api/queues');
  expect(answer.status).toBe(200);
  const { queues } = (await answer.json()) as { queues: { name: string }[] };
  expect(queues.map(({ name }) => name)).toEqual(
    expect.arrayContaining(['lane-0', 'lane-3', 'dead-letters']),
  );
});
