import { readConfig } from '../../src/platform/config.ts';
import { laneCount, layoutOf, prefixOf, shardOfLane } from '../../src/queue/lanes.ts';
import { laneServers, openRedis } from '../../src/queue/open-redis.ts';
import { type Fleet, OBSERVER } from './fleet.ts';

/** Log lines shown per worker. */
const LINES = 12;

/**
 * Describes a fleet that hangs: what each session waits for, the jobs and the holder of each lane, and the
 * last log lines of
 * the workers.
 */
export async function describeFleet({ pool, redis, workers, env }: Fleet): Promise<string> {
  const { rows: totals } = await pool.query('select lane, envelopes from lane_totals order by lane');
  const { rows: sessions } = await pool.query(
    `select application_name as name, pid, state, wait_event_type || ':' || wait_event as waits_for,
       round(extract(epoch from now() - xact_start)::numeric, 1) as seconds, pg_blocking_pids(pid) as behind,
       left(query, 100) as query
     from pg_stat_activity
     where datname = current_database() and application_name <> $1 and state <> 'idle'`,
    [OBSERVER],
  );
  const lanes = redis ? await lanesOnRedis(env) : await lanesOnPostgres(pool);
  const logs = workers.map(({ name, log }) => ({ name, log: log.slice(-LINES) }));
  return [totals, sessions, lanes, logs].map((part) => JSON.stringify(part)).join('\n');
}

/** Milliseconds per answer. */
const PATIENCE = 2000;

async function lanesOnRedis(env: Record<string, string>): Promise<unknown> {
  const config = readConfig(env);
  const redis = openRedis(config, { waits: true, commandTimeout: PATIENCE });
  try {
    const shares = '{penstock}:shares';
    // Connect first, so that the servers of the lanes are known.
    await redis.get('{penstock}:mark');
    const keys = (
      await Promise.all(laneServers(redis, config.SHARDS).map((one) => one.keys('{penstock*}:lane-*:*')))
    ).flat();
    const held = Array.from({ length: laneCount(config) }, async (_, lane) => {
      const key = `${prefixOf(shardOfLane(layoutOf(config), lane))}:lane-${lane}`;
      const [waiting, active, meta] = await Promise.all([
        redis.lrange(`${key}:wait`, -2, -1),
        redis.lrange(`${key}:active`, 0, -1),
        redis.hgetall(`${key}:meta`),
      ]);
      return { lane, waiting, deep: await redis.llen(`${key}:wait`), active, meta };
    });
    return {
      time: await redis.time(),
      workers: await redis.zrange(`${shares}:workers`, '0', '-1', 'WITHSCORES'),
      owners: await redis.hgetall(`${shares}:owners`),
      later: await redis.hgetall(`${shares}:later`),
      locks: keys.filter((key) => /:(lock|stalled|stalled-check)$/.test(key)),
      lanes: await Promise.all(held),
    };
  } finally {
    redis.disconnect();
  }
}

async function lanesOnPostgres(pool: Fleet['pool']): Promise<unknown> {
  const { rows: leases } = await pool.query(
    `select objid as lane, pid, application_name as name
     from pg_locks join pg_stat_activity using (pid) where locktype = 'advisory' and objsubid = 2`,
  );
  const { rows: jobs } = await pool.query(
    `select queue, state, count(*)::integer as jobs, min(seq) as first_seq,
       (array_agg(id || ' ' || name || ' stalled ' || stalled_count || ' lock ' ||
         coalesce((locked_until_ms - extract(epoch from clock_timestamp()) * 1000)::integer::text, '-') order by seq))[1:3] as first
     from bullmq.job group by queue, state order by queue, state`,
  );
  return { leases, jobs };
}
