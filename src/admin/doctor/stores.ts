import { messageOf } from '../../platform/log.ts';
import { skewOf } from '../../processes/heartbeat.ts';
import type { QueueConnection } from '../../queue/connection.ts';
import type { Cluster, Redis } from '../../queue/ioredis.ts';
import { allServers, isCluster, laneServers, nameOf } from '../../queue/open-redis.ts';
import {
  describeCrashLoss,
  memoryOf,
  REFUSES_FOR_OTHERS,
  readRedisSettings,
  refusesForOthers,
} from '../../queue/redis.ts';
import { findStrayJobs } from '../../queue/stray-jobs.ts';
import type { Pool } from '../../store/database.ts';
import { readStuckFences } from '../../store/fences.ts';
import {
  type PostgresHealth,
  readPostgresHealth,
  readTableSizes,
  type TableSize,
} from '../../store/health.ts';
import { isMigrated } from '../../store/migrations.ts';
import { findMissingPartitions } from '../../store/partitions.ts';
import { error, type Finding, ok, warning } from './machine.ts';

/** Maximum milliseconds to check whether the tables exist. */
const PATIENCE_MS = 3000;

/** Milliseconds by which the clock of a store may differ from ours, in addition to the round-trip time. */
const SKEW_MS = 2000;

/** Seconds after which a transaction is reported as blocking vacuum, and a fence as stuck. */
const LONG_TRANSACTION = 300;
const LONG_FENCE = 60;

/** A table is bloated if it has more than DEAD_ROWS dead rows and they exceed DEAD_PART of all its rows. */
const DEAD_ROWS = 50_000;
const DEAD_PART = 0.3;

/** Checks the release, settings, clock, migrations, partitions, fences and bloat of Postgres. */
export async function checkPostgres(pool: Pool): Promise<Finding[]> {
  const sentAt = Date.now();
  const health = await readPostgresHealth(pool);
  const findings = [
    ...evaluatePostgres(health),
    ...evaluateClock('Postgres', health.now, { sentAt, receivedAt: Date.now() }),
  ];
  if (!(await isMigrated(pool, PATIENCE_MS))) {
    findings.push(
      error('migrations', 'Postgres does not have the tables of this release', 'Run penstock migrate.'),
    );
    return findings;
  }
  findings.push(ok('migrations', 'Postgres has the tables of this release'));
  const months = await findMissingPartitions(pool, 1);
  findings.push(
    months.length === 0
      ? ok('partitions', 'the partitions of this month and the next exist')
      : error(
          'partitions',
          `missing partition: ${months.join(', ')}`,
          'Start a worker, which creates partitions at its start and every day. Start it before that month begins: rows in the default partition prevent the creation.',
        ),
  );
  const { fences, seconds } = await readStuckFences(pool, LONG_FENCE);
  findings.push(
    fences === 0
      ? ok('fences', 'no lane waits at a fence')
      : warning(
          'fences',
          `lanes wait at ${fences} fences, for up to ${Math.round(seconds)} s`,
          'Every lane needs a worker: see penstock status, and PenstockLaneStuck in docs/runbook.md.',
        ),
  );
  findings.push(...evaluateBloat(await readTableSizes(pool, 100)));
  return findings;
}

/** Validates the release, settings, damaged pages and oldest transaction of Postgres. */
export function evaluatePostgres({
  version,
  settings,
  damagedPages,
  oldestTransactionSeconds,
}: Omit<PostgresHealth, 'now' | 'inRecovery' | 'connections'>): Finding[] {
  const findings: Finding[] = [];
  const release = `Postgres ${Math.floor(version / 10_000)}.${version % 10_000}`;
  if (version < 140_000)
    findings.push(error('postgres', `${release} is too old`, 'Use Postgres 14 or newer.'));
  for (const [name, why] of [
    ['fsync', 'a crash of its machine can destroy the database'],
    ['full_page_writes', 'a crash of its machine can destroy pages'],
    ['synchronous_commit', 'a crash loses commits, and with the queue in Postgres also accepted objects'],
  ] as const)
    if (settings[name] === 'off')
      findings.push(error('postgres', `${name} is off: ${why}`, `Set ${name} = on.`));
  if (settings.data_checksums === 'off')
    findings.push(
      warning(
        'postgres',
        'data_checksums is off: a page that the disk has damaged is read as if it were correct',
        `Stop Postgres and run pg_checksums --enable --pgdata=${settings.data_directory ?? 'DIRECTORY'}, a program of Postgres ${Math.floor(version / 10_000)}. Then start Postgres again.`,
      ),
    );
  if (damagedPages > 0)
    findings.push(
      error(
        'postgres',
        `Postgres has read ${damagedPages} damaged page${damagedPages === 1 ? '' : 's'}: their checksums are wrong, and their rows are not returned`,
        'See "Damage on disk" in docs/runbook.md.',
      ),
    );
  for (const name of ['autovacuum', 'track_counts'])
    if (settings[name] === 'off')
      findings.push(
        warning('postgres', `${name} is off: tables grow, and query plans become stale`, `Set ${name} = on.`),
      );
  if (oldestTransactionSeconds > LONG_TRANSACTION)
    findings.push(
      warning(
        'postgres',
        `a transaction has been open for ${Math.round(oldestTransactionSeconds / 60)} min: it can hold locks, and prevents vacuum`,
        'Find it in pg_stat_activity by xact_start, and end it.',
      ),
    );
  return findings.length > 0 ? findings : [ok('postgres', `${release}, settings are correct`)];
}

/** Compares a store's clock with ours before and after the query; all times in epoch milliseconds. */
export function evaluateClock(
  store: string,
  now: number,
  { sentAt, receivedAt }: { sentAt: number; receivedAt: number },
): Finding[] {
  const skew = skewOf(now, { sentAt, receivedAt });
  if (Math.abs(skew) < SKEW_MS) return [ok('clock', `the clock of ${store} is ours`)];
  const found = `the clock of ${store} is ${Math.abs(Math.round(skew / 1000))} s ${skew > 0 ? 'ahead of' : 'behind'} ours`;
  return [warning('clock', found, 'Run NTP on both: order does not rest on clocks, but times shown do.')];
}

/** Reports bloated tables by the dead rows in the Postgres statistics. */
export function evaluateBloat(tables: Pick<TableSize, 'table' | 'liveRows' | 'deadRows'>[]): Finding[] {
  const bloated = tables.filter(
    ({ liveRows, deadRows }) => deadRows > DEAD_ROWS && deadRows > DEAD_PART * (liveRows + deadRows),
  );
  if (bloated.length === 0) return [ok('bloat', 'no table has many dead rows')];
  return bloated.map(({ table, deadRows }) =>
    warning(
      'bloat',
      `${table} has ${deadRows} dead rows`,
      `Run vacuum analyze ${table}. Check for a long transaction, and run autovacuum more often (autovacuum_naptime).`,
    ),
  );
}

/** Runs a check, and returns an error finding if it throws. */
export async function attempt(
  check: string,
  advice: string,
  run: () => Promise<Finding[]>,
): Promise<Finding[]> {
  try {
    return await run();
  } catch (failure) {
    const reason = messageOf(failure) || String((failure as { code?: unknown }).code ?? 'no answer');
    return [error(check, reason, advice)];
  }
}

/** Checks settings, memory, clock and replicas of each Redis server with lanes, the cluster state, and stray jobs. */
export async function checkRedis({ redis, replication, layout }: QueueConnection): Promise<Finding[]> {
  if (!redis) return [ok('redis', 'not used: the queue is in Postgres')];
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
  const strays = await findStrayJobs(redis, layout);
  if (strays.length > 0)
    findings.push(
      error(
        'redis',
        `${strays.length} job${strays.length === 1 ? ' is' : 's are'} in no list of the lane, so no worker is handed ${strays.length === 1 ? 'it' : 'them'}, for example ${strays[0]}`,
        'See "Damage on disk" in docs/runbook.md.',
      ),
    );
  return findings.some(({ check, level }) => check === 'redis' && level !== 'ok')
    ? findings
    : [ok('redis', 'settings and memory are correct'), ...findings];
}

async function checkServer(redis: Redis): Promise<Finding[]> {
  const findings: Finding[] = [];
  const settings = await readRedisSettings(redis);
  if (settings.evicts !== undefined && settings.evicts !== 'noeviction')
    findings.push(
      error(
        'redis',
        `maxmemory-policy is ${settings.evicts}: Redis can drop accepted objects`,
        'Set maxmemory-policy noeviction. Processes do not start with another policy.',
      ),
    );
  if (settings.appends !== 'yes' || settings.syncs !== 'always')
    findings.push(warning('redis', describeCrashLoss(settings), 'Or set QUEUE=postgres.'));
  const { most: maxmemory } = memoryOf(await redis.info());
  if (maxmemory === 0)
    findings.push(
      warning(
        'redis',
        'maxmemory is not set: a burst can use up the memory of the machine instead of being refused with 503',
        'Set maxmemory.',
      ),
    );
  const sentAt = Date.now();
  const [seconds, microseconds] = await redis.time();
  findings.push(
    ...evaluateClock('Redis', Number(seconds) * 1000 + Number(microseconds) / 1000, {
      sentAt,
      receivedAt: Date.now(),
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
    return [ok('replicas', `${found} replicas are connected, and REDIS_WAIT_REPLICAS needs ${wanted}`)];
  return [
    error(
      'replicas',
      `REDIS_WAIT_REPLICAS is ${wanted}, and ${found} replicas are connected: no request is accepted`,
      'Restore the replicas, or lower REDIS_WAIT_REPLICAS.',
    ),
  ];
}

/** Checks that the cluster serves all slots, and that lanes survive the loss of their server. */
async function checkCluster(redis: Cluster, shards: number): Promise<Finding[]> {
  const findings: Finding[] = [];
  const state = /cluster_state:(\w+)/.exec(String(await redis.cluster('INFO')))?.[1];
  if (state !== 'ok') findings.push(error('redis', 'the cluster is down', 'Run redis-cli --cluster check.'));
  // Replicas are checked too, because a failover can promote them.
  for (const server of shards > 1 ? allServers(redis) : []) {
    // A server that cannot be reached is reported by the check of the cluster state.
    if (!(await refusesForOthers(server).catch(() => false))) continue;
    findings.push(
      warning(
        'redis',
        `${nameOf(server)}: ${REFUSES_FOR_OTHERS}`,
        'Set cluster-require-full-coverage no in the configuration file of every server. A value from CONFIG SET is lost at a restart.',
      ),
    );
  }
  for (const server of laneServers(redis, shards)) {
    if ((await countReplicas(server)) > 0) continue;
    findings.push(
      warning(
        'redis',
        `${nameOf(server)} has lanes and no replica: while it is unavailable, no request is accepted${shards > 1 ? ' for its shards' : ''}`,
        'Add a replica.',
      ),
    );
  }
  return findings;
}
