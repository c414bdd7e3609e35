import { setTimeout as sleep } from 'node:timers/promises';
import { type Fleet, startFleetOn } from '../../test/setup/fleet.ts';
import { endLeftBehind } from '../../test/setup/left-behind.ts';
import { startRedisCluster, type TestCluster } from '../../test/setup/redis-cluster.ts';
import { waitUntil } from '../../test/setup/wait-until.ts';
import { costBetween, readCpu } from '../bench/cpu.ts';
import { findServers } from '../bench/postgres-servers.ts';
import { type Invariant, invariants } from '../chaos/check/finding.ts';
import type { Load } from '../chaos/load/load.ts';
import { pick } from '../load/random.ts';
import { createTenants } from './tenants.ts';

/** What an installation is made of. */
export interface Shape {
  workers: number;
  /** Of all shards together. */
  lanes: number;
  shards: number;
  workspaces: number;
  edges: number;
  cluster: boolean;
}

/** What was measured of it, undisturbed, and found in it after the kills. */
export interface Point extends Shape {
  objectsPerSecond: number;
  /** Microseconds of processor time per object: of each kind of process, and `others_cores`. */
  cost: Record<string, number>;
  objects: number;
  kills: number;
  violations: Partial<Record<Invariant, number>>;
  examples: string[];
}

/** Milliseconds between two kills. */
const KILL_EVERY = 1500;

/** Seconds for each web and worker: all of them share the cores while they compile what is called often. */
const WARM_UP = 2;

/** How a shape is measured. */
interface Measuring {
  url: string;
  /** Per request, about. */
  objects: number;
  /** Of each half. */
  seconds: number;
  warmUp?: number;
  random: () => number;
}

/** Findings that are named; there may be as many as objects. */
const NAMED = 5;

/** One shape: traffic until it is applied, then the same traffic while workers are killed, and a look at all that is stored. */
export async function measurePoint(
  shape: Shape,
  { url, objects, seconds, warmUp, random }: Measuring,
): Promise<Point> {
  const { workers, lanes, shards, edges } = shape;
  const cluster = shape.cluster ? await startRedisCluster({ primaries: 3, replicas: 1 }) : undefined;
  const env = {
    ...{ LANES: String(Math.max(1, Math.round(lanes / shards))), SHARDS: String(shards) },
    ...(cluster && { ...cluster.env, REDIS_WAIT_REPLICAS: '1' }),
  };
  const fleet = await startFleetOn(url, 'redis', { edges, workers, env, redis: cluster?.nodes[0] });
  try {
    const servers = await findServers(url);
    const tenants = await createTenants(fleet, shape.workspaces, objects);
    // Before anybody has asked where they are.
    await fleet.pool.query(
      `update workspaces set shard = (place.number % $1::integer)::integer
       from (select id, row_number() over (order by id) as number from workspaces) as place
       where place.id = workspaces.id`,
      [shards],
    );
    const loads = tenants.send();
    const stop = () => Promise.all(loads.map((load) => load.stop()));
    // Prepared statements, compiled code.
    await waitUntil(async () => (await tenants.processed()) > 0, {
      what: 'the first objects',
      deadline: 60_000,
    });
    await sleep((warmUp ?? WARM_UP * (workers + edges)) * 1000);
    await fallBehind(fleet, seconds);
    const before = {
      cpu: readCpu(pidsOf(fleet, servers, cluster)),
      objects: await tenants.processed(),
      at: performance.now(),
    };
    await sleep(seconds * 1000);
    const after = {
      cpu: readCpu(pidsOf(fleet, servers, cluster)),
      objects: await tenants.processed(),
      at: performance.now(),
    };
    const rows = after.objects - before.objects;
    const took = (after.at - before.at) / 1000;
    const kills = await killWorkers(fleet, { seconds, random });
    await stop();
    await tenants.drained();
    const findings = [...(await tenants.check(loads)), ...surprisesOf(loads)];
    const violations: Point['violations'] = {};
    for (const { invariant } of findings) violations[invariant] = (violations[invariant] ?? 0) + 1;
    return {
      ...{ ...shape, kills, violations, objectsPerSecond: rows / took },
      cost: sumOfWorkers(costBetween(before.cpu, after.cpu, 0, { rows, seconds: took })),
      objects: loads.reduce((sum, { journal }) => sum + journal.acknowledged, 0),
      examples: findings.slice(0, NAMED).map(({ invariant, what }) => `${invariant}: ${what}`),
    };
  } finally {
    await fleet.stop();
    await cluster?.stop();
    await endLeftBehind();
  }
}

/**
 * Workers that keep up have small transactions, the smaller the more of them there are, and what those cost says nothing of
 * full load: so they are held until more waits than they apply while they are measured.
 */
async function fallBehind({ workers }: Fleet, seconds: number): Promise<void> {
  for (const { pid } of workers) process.kill(pid, 'SIGSTOP');
  await sleep(seconds * 1000);
  for (const { pid } of workers) process.kill(pid, 'SIGCONT');
}

/** With SIGKILL, one after the other, each followed by another one. */
async function killWorkers(
  fleet: Fleet,
  { seconds, random }: { seconds: number; random: () => number },
): Promise<number> {
  const end = performance.now() + seconds * 1000;
  let kills = 0;
  while (performance.now() < end) {
    await fleet.end(pick(random, fleet.workers));
    kills++;
    await Promise.all([fleet.startWorker(), sleep(KILL_EVERY)]);
  }
  return kills;
}

/** A reply that does not fit its request breaks what its client may rely on. */
function surprisesOf(loads: Load[]) {
  return loads.flatMap(({ surprises }) => surprises.map((what) => ({ invariant: 'I1' as const, what })));
}

/** @param servers of Postgres */
function pidsOf(
  fleet: Fleet,
  servers: Record<string, number>,
  cluster?: TestCluster,
): Record<string, number> {
  const workers = fleet.workers.map(({ pid }, index) => [`worker${index}`, pid] as const);
  const webs = fleet.edges.map(({ pid }, index) => [`web${index}`, pid] as const);
  const nodes = (cluster?.nodes ?? [fleet.redis!]).map(({ pid }, index) => [`redis${index}`, pid] as const);
  return { ...Object.fromEntries([...webs, ...workers, ...nodes]), ...servers };
}

/** Names without their prefix, and processes of one kind as one. */
function sumOfWorkers(cost: Record<string, number>): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const [key, value] of Object.entries(cost)) {
    const name = key.replace('cpu_us_', '').replace(/\d+$/, '');
    if (name !== 'generator') sums[name] = (sums[name] ?? 0) + value;
  }
  return sums;
}

/** The table of what was measured. */
export function describePoints(points: Point[]): string {
  const head = [
    'workers',
    'lanes',
    'shards',
    'workspaces',
    'objects/s',
    'web',
    'worker',
    'Postgres',
    'Redis',
    'µs/object',
  ];
  const rows = points.map(
    ({ workers, lanes, shards, workspaces, objectsPerSecond, cost, objects, kills, violations }) => {
      const { web = 0, worker = 0, postgres = 0, redis = 0, others_cores = 0 } = cost;
      const broken = Object.entries(violations).map(([invariant, count]) => `${invariant} ${count}`);
      return [
        ...[workers, lanes, shards, workspaces, Math.round(objectsPerSecond)].map((value) =>
          value.toLocaleString('en'),
        ),
        ...[web, worker, postgres, redis, web + worker + postgres + redis].map((value) => value.toFixed(1)),
        ...[
          others_cores.toFixed(1),
          objects.toLocaleString('en'),
          String(kills),
          broken.join(', ') || 'hold',
        ],
      ];
    },
  );
  const all = [
    [...head, 'others, cores', 'checked', 'kills', Object.keys(invariants).slice(0, 5).join(' ')],
    ...rows,
  ];
  const widths = all[0]!.map((_, column) => Math.max(...all.map((row) => row[column]!.length)));
  return all
    .map((row) => `${row.map((cell, column) => cell.padStart(widths[column]!)).join('  ')}\n`)
    .join('');
}
