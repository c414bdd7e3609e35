import { LANES_KEY, startRedisCluster } from '../setup/redis-cluster.ts';
import { waitUntil } from '../setup/wait-until.ts';
import { bullmqServer, describeLaneStore, type StoreServer } from './lane-store-cases.ts';

describeLaneStore('a Redis Cluster', async (): Promise<StoreServer> => {
  const cluster = await startRedisCluster({ primaries: 3, replicas: 1 });
  const primary = () => cluster.primaryOf(LANES_KEY);
  // Acknowledged objects must survive the loss of their primary.
  const { stopOperators, ...common } = bullmqServer({ ...cluster.env, REDIS_WAIT_REPLICAS: '1' }, '');
  return {
    ...common,
    dropsProducers: true,
    async comeBackEmpty() {
      const index = await primary();
      await cluster.call(index, 'FLUSHALL');
      await cluster.call(index, 'CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
    },
    async expireLock(lane) {
      const index = await primary();
      const locks = await cluster.call(index, 'KEYS', `{penstock}:lane-${lane}:*:lock`);
      for (const lock of locks as string[]) await cluster.call(index, 'PEXPIRE', lock, 1);
    },
    async failDuring(add) {
      const before = await primary();
      const ended = add().catch(() => {});
      await cluster.nodes[before]!.kill();
      await ended;
      const isPromoted = async () => {
        const now = await primary();
        return now !== before && now >= 0;
      };
      await waitUntil(isPromoted, { what: 'the replica to be promoted' });
      // It becomes the replica of its successor, which cannot acknowledge adds without a replica.
      await cluster.restart(before);
      await cluster.waitUntilStable();
    },
    async stop() {
      await stopOperators();
      await cluster.stop();
    },
  };
});
