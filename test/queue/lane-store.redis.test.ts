import { Redis } from '../../src/queue/ioredis.ts';
import { startRedis, waitUntil } from '../setup/fixtures.ts';
import { bullmqServer, describeLaneStore, type StoreServer } from './lane-store-cases.ts';

/** Matches a client with an open transaction. */
const IN_TRANSACTION = /\bmulti=\d/;

describeLaneStore('redis', async (): Promise<StoreServer> => {
  const redis = await startRedis();
  const operator = new Redis(redis.url);
  const dropClients = () => operator.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
  const { stopOperators, ...common } = bullmqServer({ REDIS_URL: redis.url }, '');
  return {
    ...common,
    dropsProducers: true,
    async comeBackEmpty() {
      await operator.flushall();
      await dropClients();
    },
    async expireLock(lane) {
      for (const lock of await operator.keys(`{penstock}:lane-${lane}:*:lock`))
        await operator.pexpire(lock, 1);
    },
    async failDuring(add) {
      await operator.client('PAUSE', 60_000, 'WRITE');
      const ended = add().catch(() => {});
      const list = async () => String(await operator.client('LIST'));
      await waitUntil(async () => IN_TRANSACTION.test(await list()), { what: 'the add' });
      await dropClients();
      await operator.client('UNPAUSE');
      await ended;
    },
    async stop() {
      await stopOperators();
      operator.disconnect();
      await redis.stop();
    },
  };
});
