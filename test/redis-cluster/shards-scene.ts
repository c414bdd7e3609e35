import { startFleet } from '../guarantees/fleet.ts';
import { startRedisCluster } from '../setup/redis-cluster.ts';
import { createWorkspace, type TestWorkspace } from '../setup/workspace.ts';

/**
 * Starts a cluster of three primaries that share the shards, one web process, and a workspace in each shard.
 */
export async function startShards(shards: number, workers: number) {
  // An argument, because CONFIG SET is lost in a restart.
  const cluster = await startRedisCluster({ primaries: 3, args: ['--cluster-require-full-coverage', 'no'] });
  const env = { ...cluster.env, SHARDS: String(shards), LANES: '2', QUEUE_TIMEOUT_MS: '1500' };
  const fleet = await startFleet('redis', { redis: cluster.nodes[0], edges: 1, workers, env });
  const tenants: TestWorkspace[] = [];
  for (let shard = 0; shard < shards; shard++) {
    const workspace = await createWorkspace(fleet.pool, `of shard ${shard}`);
    await fleet.pool.query('update workspaces set shard = $2 where id = $1', [workspace.id, shard]);
    tenants.push(workspace);
  }
  return { cluster, fleet, tenants };
}
