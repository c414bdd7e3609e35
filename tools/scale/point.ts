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

/** The size of an installation. */
export interface Shape {
  workers: number;
  /** Number of lanes of all shards together. */
  lanes: number;
  shards: number;
  workspaces: number;
  edges: number;
  cluster: boolean;
}

/** The measurement of a shape without faults, and the violations that were found after the kills. */
export interface Point extends Shape {
  objectsPerSecond: number;
  /**
   * Microseconds of processor time per object, by kind of process. `others_cores` is the number of cores that other
   * programs used.
   */
  cost: Record<string, number>;
  objects: number;
  kills: number;
  violations: Partial<Record<Invariant, number>>;
  examples: string[];
}

/** Milliseconds between two kills. */
const KILL_INTERVAL = 1500;

/** Seconds of warm-up for each web process and worker: they share the cores while V8 compiles their code. */
const WARM_UP = 2;

interface MeasureOptions {
  url: string;
  /** Approximate number of objects per request. */
  objects: number;
  /** Length in seconds of each half: without faults, and with kills. */
  seconds: number;
  /** Seconds of traffic before the first half. Default: WARM_UP for each web process and worker. */
  warmUp?: number;
  random: () => number;
}

/** Maximum number of violations that are described. There may be as many as objects. */
const MAX_EXAMPLES = 5;

/**
 * Measures one shape under traffic, first without faults, while it has a backlog, and then while workers are killed. When
 * everything is applied, it checks the stored data.
 */
export async function measurePoint(
  shape: Shape,
  { url, objects, seconds, warmUp, random }: MeasureOptions,
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
    // Spread the workspaces before a process caches their shard.
    await fleet.pool.query(
      `update workspaces set shard = (place.number % $1::integer)::integer
       from (select id, row_number() over (order by id) as number from workspaces) as place
       where place.id = workspaces.id`,
      [shards],
    );
    const loads = tenants.send();
    const stop = () => Promise.all(loads.map((load) => load.stop()));
    // Measure only after the statements are prepared and the code is compiled.
    await waitUntil(async () => (await tenants.processed()) > 0, {
      what: 'the first objects',
      deadline: 60_000,
    });
    await sleep((warmUp ?? WARM_UP * (workers + edges)) * 1000);
    await buildBacklog(fleet, seconds);
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
    const elapsed = (after.at - before.at) / 1000;
    const kills = await killWorkers(fleet, { seconds, random });
    await stop();
    await tenants.drained();
    const findings = [...(await tenants.check(loads)), ...wrongRepliesOf(loads)];
    const violations: Point['violations'] = {};
    for (const { invariant } of findings) violations[invariant] = (violations[invariant] ?? 0) + 1;
    return {
      ...{ ...shape, kills, violations, objectsPerSecond: rows / elapsed },
      cost: sumByKind(costBetween(before.cpu, after.cpu, 0, { rows, seconds: elapsed })),
      objects: loads.reduce((sum, { journal }) => sum + journal.acknowledged, 0),
      examples: findings.slice(0, MAX_EXAMPLES).map(({ invariant, what }) => `${invariant}: ${what}`),
    };
  } finally {
    await fleet.stop();
    await cluster?.stop();
    await endLeftBehind();
  }
}

/**
 * Pauses all workers for some seconds, so that they have a backlog during the measurement. Workers without a backlog apply
 * small transactions, which get smaller with the number of workers. Their cost differs from the cost under full load.
 */
async function buildBacklog({ workers }: Fleet, seconds: number): Promise<void> {
  for (const { pid } of workers) process.kill(pid, 'SIGSTOP');
  await sleep(seconds * 1000);
  for (const { pid } of workers) process.kill(pid, 'SIGCONT');
}

/** Kills workers at random with SIGKILL, one at a time, and starts a new worker after each kill. @returns the number of kills */
async function killWorkers(
  fleet: Fleet,
  { seconds, random }: { seconds: number; random: () => number },
): Promise<number> {
  const end = performance.now() + seconds * 1000;
  let kills = 0;
  while (performance.now() < end) {
    await fleet.end(pick(random, fleet.workers));
    kills++;
    await Promise.all([fleet.startWorker(), sleep(KILL_INTERVAL)]);
  }
  return kills;
}

/** Returns a violation of I1 for each reply that does not fit its request. */
function wrongRepliesOf(loads: Load[]) {
  return loads.flatMap(({ surprises }) => surprises.map((what) => ({ invariant: 'I1' as const, what })));
}

/** Returns the ids of all processes by name, for example `worker0`. @param servers ids of the Postgres servers by name */
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

/** Adds up the cost of processes of one kind. Omits the load generator, and removes the prefix of the names. */
function sumByKind(cost: Record<string, number>): Record<string, number> {
  const sums: Record<string, number> = {};
  for (const [key, value] of Object.entries(cost)) {
    const name = key.replace('cpu_us_', '').replace(/\d+$/, '');
    if (name !== 'generator') sums[name] = (sums[name] ?? 0) + value;
  }
  return sums;
}

/** Returns the measured points as a table in plain text. */
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
