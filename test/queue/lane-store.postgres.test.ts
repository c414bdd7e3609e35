import pg from 'pg';
import { createDatabase, waitUntil } from '../setup/fixtures.ts';
import { bullmqServer, describeLaneStore, type StoreServer } from './lane-store-cases.ts';

/** Ends the sessions of adds that wait for the table. */
const endAdds = `
  select pg_terminate_backend(pid) from pg_stat_activity
  where datname = current_database() and wait_event_type = 'Lock' and query ~* 'add_flow'`;

describeLaneStore('postgres', async (): Promise<StoreServer> => {
  const { url } = await createDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 2 });
  pool.on('error', () => {});
  const { stopOperators, ...common } = bullmqServer({ DATABASE_URL: url, QUEUE: 'postgres' }, url);
  return {
    ...common,
    // Tables cannot come back empty without a restart of their processes.
    dropsProducers: false,
    async comeBackEmpty() {
      await pool.query('delete from bullmq.job; delete from bullmq.meta');
    },
    async expireLock(lane) {
      const statement = `
        update bullmq.job set locked_until_ms = 0 where queue = $1 and state = 'active'`;
      await pool.query(statement, [`lane-${lane}`]);
    },
    async failDuring(add) {
      const client = await pool.connect();
      await client.query('begin; lock table bullmq.job in exclusive mode');
      const ended = add().catch(() => {});
      await waitUntil(async () => (await pool.query(endAdds)).rows.length > 0, { what: 'the add' });
      await client.query('rollback');
      client.release();
      await ended;
    },
    async stop() {
      await stopOperators();
      await pool.end();
    },
  };
});
