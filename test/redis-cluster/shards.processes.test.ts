import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Finding } from '../../src/admin/doctor/machine.ts';
import { markOf } from '../../src/queue/shards.ts';
import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { type Fleet, startFleet, statusOf } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { startRedisCluster, type TestCluster } from '../setup/redis-cluster.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';

const SHARDS = 3;
const time = '2026-01-31T12:00:00.000Z';

let cluster: TestCluster;
let fleet: Fleet;
/** One in each shard. */
const tenants: TestWorkspace[] = [];
beforeAll(async () => {
  cluster = await startRedisCluster({ primaries: 3 });
  for (const index of cluster.nodes.keys())
    await cluster.ask(index, 'CONFIG', 'SET', 'cluster-require-full-coverage', 'no');
  const env = { ...cluster.env, SHARDS: String(SHARDS), LANES: '2', QUEUE_TIMEOUT_MS: '1500' };
  fleet = await startFleet('redis', { redis: cluster.nodes[0], edges: 1, workers: 2, env });
  for (let shard = 0; shard < SHARDS; shard++) {
    const workspace = await createWorkspace(fleet.pool, `of shard ${shard}`);
    await fleet.pool.query('update workspaces set shard = $2 where id = $1', [workspace.id, shard]);
    tenants.push(workspace);
  }
});
afterAll(async () => {
  await fleet.stop();
  await cluster.stop();
});

const ask = (shard: number, path: string, json: object) =>
  send(fleet.edges[0]!.port, { method: 'POST', path, key: tenants[shard]!.key, json: json as never });

const track = async (shard: number, user: string) =>
  (await ask(shard, '/users/track', { events: [{ external_id: user, name: 'seen', time }] })).status;

const shows = (shard: number, user: string) =>
  waitUntil(
    async () => {
      const { body } = await ask(shard, '/users/export/ids', { external_ids: [user] });
      return (body.users as object[] | undefined)?.length === 1;
    },
    { what: `${user} in shard ${shard}` },
  );

test('three shards are on three primaries, and what each workspace sends takes effect', async () => {
  const primaries = await Promise.all([0, 1, 2].map((shard) => cluster.primaryOf(markOf(shard))));
  expect(new Set(primaries).size).toBe(3);
  for (const shard of [0, 1, 2]) {
    expect(await track(shard, 'first')).toBe(201);
    await shows(shard, 'first');
  }
});

test('G5: without the primary of a shard its workspaces are refused, and the others go on', async () => {
  const [away, others] = [1, [0, 2]];
  const primary = await cluster.primaryOf(markOf(away));
  const user = 'without';
  await cluster.nodes[primary]!.kill();
  try {
    await waitUntil(async () => (await track(away, 'refused')) === 503, { what: 'a refusal' });
    // A client that looks for its way after a server is gone refuses a request of the others now and then.
    for (let round = 0; round < 5; round++)
      for (const shard of others)
        await waitUntil(async () => (await track(shard, `${user} ${round}`)) === 201, {
          what: `an answer of shard ${shard}`,
          fleeting: true,
        });
    for (const shard of others) await shows(shard, `${user} 4`);
    expect(await statusOf(fleet.edges[0]!.port, '/readyz')).toBe(200);
    expect(await track(away, 'refused')).toBe(503);
  } finally {
    await cluster.restart(primary);
    await cluster.settled();
  }
  await waitUntil(async () => (await track(away, user)) === 201, { what: 'its return', deadline: 30_000 });
  await shows(away, user);
});

test('a workspace moves to another primary, and doctor looks at all of them', async () => {
  const { stdout } = await spawnPenstock(
    ['workspaces', 'move', tenants[1]!.id, '--shard', '2', '--json'],
    fleet.env,
  );
  expect(JSON.parse(stdout)).toMatchObject({ from: 1, shard: 2 });
  expect(await track(1, 'moved')).toBe(201);
  await shows(1, 'moved');
  for (const index of cluster.nodes.keys())
    await cluster.ask(index, 'CONFIG', 'SET', 'cluster-require-full-coverage', 'yes');
  const doctor = await spawnPenstock(['doctor', '--json'], fleet.env);
  const { findings } = JSON.parse(doctor.stdout) as { findings: Finding[] };
  expect(findings.map(({ finding }) => finding)).toContainEqual(
    expect.stringMatching('cluster-require-full-coverage is yes'),
  );
  for (const { port } of cluster.nodes)
    expect(findings.map(({ finding }) => finding)).toContainEqual(
      expect.stringMatching(`^127.0.0.1:${port}: it has no maxmemory`),
    );
});
