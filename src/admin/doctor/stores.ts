import { usageOf } from '../../checks/read.ts';
import type { MachineReadings, OwnWork, Readings, RedisServer } from '../../checks/readings.ts';
import { skewOf } from '../../processes/heartbeat.ts';
import type { QueueConnection } from '../../queue/connection.ts';
import type { Cluster, Redis } from '../../queue/ioredis.ts';
import { allServers, isCluster, laneServers, nameOf } from '../../queue/open-redis.ts';
import { memoryOf, readRedisSettings, refusesForOthers } from '../../queue/redis.ts';
import { findStrayJobs } from '../../queue/stray-jobs.ts';
import { READS, versionOf } from '../../queue/wire.ts';
import type { Pool } from '../../store/database.ts';
import { readStuckFences } from '../../store/fences.ts';
import { readPostgresHealth, readTableSizes } from '../../store/health.ts';
import { isMigrated } from '../../store/migrations.ts';
import { findMissingPartitions } from '../../store/partitions.ts';

/** Maximum milliseconds to check whether the tables exist. */
const PATIENCE_MS = 3000;

/** Seconds after which a fence counts as stuck. */
const LONG_FENCE = 60;

/** Maximum number of tables that are read, largest first. */
const MAX_TABLES = 100;

/** Reads the health and the clock of Postgres. */
export async function readServer(pool: Pool): Promise<Pick<Readings, 'postgres'> & { clock: Clock }> {
  const sentAt = Date.now();
  const health = await readPostgresHealth(pool);
  const receivedAt = Date.now();
  return {
    postgres: { latency: receivedAt - sentAt, ...usageOf(health) },
    clock: { store: 'Postgres', skew: skewOf(health.now, { sentAt, receivedAt }) },
  };
}

type Clock = NonNullable<MachineReadings['clocks']>[number];

/** Reads whether the tables of this release exist, and if they do, their partitions, fences and sizes. */
export async function readTables(
  pool: Pool,
): Promise<Pick<MachineReadings, 'isMigrated' | 'missingPartitions' | 'fences' | 'tables'>> {
  if (!(await isMigrated(pool, PATIENCE_MS))) return { isMigrated: false };
  return {
    isMigrated: true,
    missingPartitions: await findMissingPartitions(pool, 1),
    fences: await readStuckFences(pool, LONG_FENCE),
    tables: await readTableSizes(pool, MAX_TABLES),
  };
}

/** Reads each Redis server with lanes, the state of the cluster, and stray jobs. */
export async function readRedis({
  redis,
  replication,
  layout,
}: QueueConnection): Promise<Required<Pick<MachineReadings, 'redis' | 'clocks'>>> {
  if (!redis) return { redis: { servers: [], replicasWanted: 0, strayJobs: [] }, clocks: [] };
  const { shards } = layout;
  const inCluster = isCluster(redis);
  const servers: RedisServer[] = [];
  const clocks: Clock[] = [];
  for (const server of laneServers(redis, shards)) {
    const name = inCluster ? nameOf(server) : undefined;
    const info = await server.info();
    const replicas = Number(/^connected_slaves:(\d+)/m.exec(info)?.[1] ?? 0);
    const settings = await readRedisSettings(server);
    servers.push({ name, settings, maxmemory: memoryOf(info).most, replicas });
    clocks.push({ store: name === undefined ? 'Redis' : `Redis ${name}`, skew: await readSkew(server) });
  }
  const strayJobs = await findStrayJobs(redis, layout);
  return {
    redis: {
      ...{ servers, replicasWanted: replication?.replicas ?? 0, strayJobs },
      ...(inCluster && { cluster: await readCluster(redis, shards) }),
    },
    clocks,
  };
}

async function readSkew(redis: Redis): Promise<number> {
  const sentAt = Date.now();
  const [seconds, microseconds] = await redis.time();
  const now = Number(seconds) * 1000 + Number(microseconds) / 1000;
  return skewOf(now, { sentAt, receivedAt: Date.now() });
}

async function readCluster(redis: Cluster, shards: number) {
  const state = /cluster_state:(\w+)/.exec(String(await redis.cluster('INFO')))?.[1];
  const dependent: string[] = [];
  // Replicas are read too, because a failover can promote them.
  for (const server of shards > 1 ? allServers(redis) : []) {
    // A server that cannot be reached is reported by the check of the cluster state.
    if (await refusesForOthers(server).catch(() => false)) dependent.push(nameOf(server));
  }
  return { isServing: state === 'ok', shards, dependent };
}

/**
 * Reads the lanes whose first job was written by a later release.
 * @throws if the queue is unavailable
 */
export async function readUnreadable(
  { laneStore }: Pick<QueueConnection, 'laneStore'>,
  lanes: number,
): Promise<Required<Pick<OwnWork, 'unreadable'>>> {
  const unreadable: NonNullable<OwnWork['unreadable']> = [];
  for (let lane = 0; lane < lanes; lane++) {
    const [first] = await laneStore.read(lane, await laneStore.head(lane, 1));
    const version = versionOf(first?.data);
    if (version > READS) unreadable.push({ lane, version, reads: READS });
  }
  return { unreadable };
}
