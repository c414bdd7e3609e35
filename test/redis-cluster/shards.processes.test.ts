import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Finding } from '../../src/admin/doctor/findings.ts';
import { markOf } from '../../src/queue/lanes.ts';
import { spawnPenstock } from '../admin/spawn-penstock.ts';
import { type Fleet, statusOf } from '../guarantees/fleet.ts';
import { send } from '../setup/api.ts';
import { waitUntil } from '../setup/fixtures.ts';
import { isLong } from '../setup/length.ts';
import type { TestCluster } from '../setup/redis-cluster.ts';
import type { TestWorkspace } from '../setup/workspace.ts';
import { startShards } from './shards-scene.ts';

const SHARDS = 3;
/**
 * Shards whose primary is lost: the first one, whose keys are those of an installation without shards, and
 * others.
 */
const AWAY = isLong ? [1, 0, 2] : [1, 0];
const time = '2026-01-31T12:00:00.000Z';

let cluster: TestCluster;
let fleet: Fleet;
/** One workspace per shard. */
let tenants: TestWorkspace[];
beforeAll(async () => {
  ({ cluster, fleet, tenants } = await startShards(SHARDS, 2));
});
afterAll(async () => {
  await fleet.stop();
  await cluster.stop();
});

const request = (shard: number, path: string, json: object) =>
  send(fleet.edges[0]!.port, { method: 'POST', path, key: tenants[shard]!.key, json: json as never });

const track = async (shard: number, user: string) =>
  (await request(shard, '/users/track', { events: [{ external_id: user, name: 'seen', time }] })).status;

const shows = (shard: number, user: string) =>
  waitUntil(
    async () => {
      const { body } = await request(shard, '/users/export/ids', { external_ids: [user] });
      return (body.users as object[] | undefined)?.length === 1;
    },
    { what: `${user} in shard ${shard}` },
  );

test('three shards are on three primaries, and objects of each workspace take effect', async () => {
  const primaries = await Promise.all([0, 1, 2].map((shard) => cluster.primaryOf(markOf(shard))));
  expect(new Set(primaries).size).toBe(3);
  for (const shard of [0, 1, 2]) {
    expect(await track(shard, 'first')).toBe(201);
    await shows(shard, 'first');
  }
});

test.each(AWAY)('G5: without the primary of shard %i only its own workspaces are rejected', async (away) => {
  const others = [0, 1, 2].filter((shard) => shard !== away);
  const primary = await cluster.primaryOf(markOf(away));
  const user = `without ${away}`;
  await cluster.nodes[primary]!.kill();
  try {
    await waitUntil(async () => (await track(away, 'refused')) === 503, { what: 'a refusal' });
    // The other nodes have noticed the loss.
    await waitUntil(async () => cluster.agreesOnLossOf(primary), { what: 'the others to know' });
    for (let round = 0; round < 5; round++)
      for (const shard of others) expect(await track(shard, `${user} ${round}`)).toBe(201);
    // Leases of all lanes are in the first shard: a lane that changed hands during the loss waits for it.
    if (away !== 0) for (const shard of others) await shows(shard, `${user} 4`);
    expect(await statusOf(fleet.edges[0]!.port, '/readyz')).toBe(200);
    expect(await track(away, 'refused')).toBe(503);
  } finally {
    await cluster.restart(primary);
    await cluster.waitUntilStable();
  }
  await waitUntil(async () => (await track(away, user)) === 201, { what: 'its return', deadline: 30_000 });
  await shows(away, user);
  for (const shard of others) await shows(shard, `${user} 4`);
});

test('a workspace moves to another primary, and new processes and doctor check all of them', async () => {
  const { stdout } = await spawnPenstock(
    ['workspaces', 'move', tenants[1]!.id, '--shard', '2', '--json'],
    fleet.env,
  );
  expect(JSON.parse(stdout)).toMatchObject({ from: 1, shard: 2 });
  expect(await track(1, 'moved')).toBe(201);
  await shows(1, 'moved');
  await cluster.call(1, 'CONFIG', 'SET', 'cluster-require-full-coverage', 'yes');
  const worker = await fleet.startWorker();
  const warned = worker.log.filter(({ msg }) => /cluster-require-full-coverage/.test(String(msg)));
  expect(warned.map(({ node }) => node)).toEqual([`127.0.0.1:${cluster.nodes[1]!.port}`]);
  const doctor = await spawnPenstock(['doctor', '--json'], fleet.env);
  const { findings } = JSON.parse(doctor.stdout) as { findings: Finding[] };
  const refusing = findings.filter(({ finding }) => finding.includes('cluster-require-full-coverage is yes'));
  expect(refusing.map(({ finding }) => finding.split(': ')[0])).toEqual([
    `127.0.0.1:${cluster.nodes[1]!.port}`,
  ]);
  for (const { port } of cluster.nodes)
    expect(findings.map(({ finding }) => finding)).toContainEqual(
      expect.stringMatching(`^127.0.0.1:${port}: maxmemory is not set`),
    );
});
