import { healthOf } from '../../processes/surroundings.ts';
import type { Cluster, Redis } from '../../queue/bullmq.ts';
import type { QueueConnection } from '../../queue/connection.ts';
import { memoryOf } from '../../queue/memory.ts';
import { allServers, isCluster, laneServers, nameOf } from '../../queue/open-redis.ts';
import {
  REFUSES_FOR_OTHERS,
  readRedisSettings,
  refusesForOthers,
  whatACrashLoses,
} from '../../queue/redis.ts';
import { error, type Finding, ok, warning } from './machine.ts';
import { judgeClock, LONG_LAG } from './stores.ts';

/** Redis: settings, memory, disk, clock, replicas; of a cluster, of each server that has lanes, and its state. */
export async function checkRedis({ redis, replication, layout }: QueueConnection): Promise<Finding[]> {
  if (!redis) return [ok('redis', 'there is none: the queue is in Postgres')];
  const { shards } = layout;
  const findings = isCluster(redis) ? await checkCluster(redis, shards) : [];
  for (const server of laneServers(redis, shards)) {
    const found = [
      ...(await checkServer(server)),
      ...(await checkReplicas(server, replication?.replicas ?? 0)),
    ];
    findings.push(
      ...(isCluster(redis)
        ? found.map((one) => ({ ...one, finding: `${nameOf(server)}: ${one.finding}` }))
        : found),
    );
  }
  return findings.some(({ check, level }) => check === 'redis' && level !== 'ok')
    ? findings
    : [ok('redis', 'settings and memory in order'), ...findings];
}

async function checkServer(redis: Redis): Promise<Finding[]> {
  const findings: Finding[] = [];
  const settings = await readRedisSettings(redis);
  if (settings.evicts !== undefined && settings.evicts !== 'noeviction')
    findings.push(
      error(
        'redis',
        `maxmemory-policy is ${settings.evicts}: it throws accepted objects away`,
        'Set maxmemory-policy noeviction; no process starts on it otherwise.',
      ),
    );
  if (settings.appends !== 'yes' || settings.syncs !== 'always')
    findings.push(warning('redis', whatACrashLoses(settings), 'Or set QUEUE=postgres.'));
  const info = await redis.info();
  const { used, most } = memoryOf(info);
  if (most === 0)
    findings.push(
      warning('redis', 'it has no maxmemory: a flood takes the machine, not a 503', 'Set maxmemory.'),
    );
  else if (used / most > 0.7)
    findings.push(
      warning(
        'redis',
        `${Math.round((used / most) * 100)} % of its maxmemory is used`,
        'See PenstockRedisFull in docs/runbook.md.',
      ),
    );
  const { writes, lagSeconds = 0 } = healthOf(info);
  if (!writes) findings.push(error('redis', 'it could not write to its disk', 'Make room on its disk.'));
  if (lagSeconds > LONG_LAG)
    findings.push(
      warning('replication', `a replica of Redis is ${lagSeconds} s behind`, 'Look at its network.'),
    );
  const asked = Date.now();
  const [seconds, microseconds] = await redis.time();
  findings.push(
    ...judgeClock('Redis', Number(seconds) * 1000 + Number(microseconds) / 1000, {
      asked,
      answered: Date.now(),
    }),
  );
  return findings;
}

async function countReplicas(server: Redis): Promise<number> {
  return Number(/^connected_slaves:(\d+)/m.exec(await server.info('replication'))?.[1] ?? 0);
}

async function checkReplicas(server: Redis, wanted: number): Promise<Finding[]> {
  if (wanted === 0) return [];
  const found = await countReplicas(server);
  if (found >= wanted)
    return [ok('replicas', `${found} replicas are connected, and ${wanted} are waited for`)];
  return [
    error(
      'replicas',
      `REDIS_WAIT_REPLICAS is ${wanted}, and ${found} are connected: nothing is accepted`,
      'Bring the replicas back, or lower REDIS_WAIT_REPLICAS.',
    ),
  ];
}

/** Whether every slot is served, and what becomes of the lanes when their server dies. */
async function checkCluster(redis: Cluster, shards: number): Promise<Finding[]> {
  const findings: Finding[] = [];
  const state = /cluster_state:(\w+)/.exec(String(await redis.cluster('INFO')))?.[1];
  if (state !== 'ok')
    findings.push(error('redis', 'the cluster is down', 'Look at redis-cli --cluster check.'));
  // A replica too: it may have a shard one day.
  for (const server of shards > 1 ? allServers(redis) : []) {
    // One that is away is missed by the check of the slots.
    if (!(await refusesForOthers(server).catch(() => false))) continue;
    findings.push(
      warning(
        'redis',
        `${nameOf(server)}: ${REFUSES_FOR_OTHERS}`,
        'Set cluster-require-full-coverage no in the configuration file of every server: what CONFIG SET says is gone after a restart.',
      ),
    );
  }
  for (const server of laneServers(redis, shards)) {
    if ((await countReplicas(server)) > 0) continue;
    findings.push(
      warning(
        'redis',
        `${nameOf(server)} has lanes and no replica: while it is away nothing is accepted${shards > 1 ? ' for its shards' : ''}`,
        'Give it a replica.',
      ),
    );
  }
  return findings;
}
