import { expect, test } from 'vitest';
import { newId } from '../../src/platform/ids.ts';
import { migrate } from '../../src/processes/migrate.ts';
import { everyStatementByIndex, openPool } from '../../src/store/database.ts';
import { distribute } from '../../src/store/distribute.ts';
import { declareWorkspace } from '../../src/store/distributed.ts';
import { inTransaction } from '../../src/store/transactions.ts';
import { citusUrl, createCitusDatabase } from '../setup/citus.ts';

test.skipIf(!citusUrl)(
  'planner and timeout settings of a session hold on the node in each transaction',
  async () => {
    const { url } = await createCitusDatabase();
    await migrate(url);
    const plain = openPool(url, 1);
    await distribute(plain).finally(() => plain.end());
    const pool = openPool(url, 1, { session: everyStatementByIndex });
    const id = newId();
    const readSession = () =>
      inTransaction(
        pool,
        async (tx) => {
          await declareWorkspace(tx, id);
          const { rows } = await tx.query(
            `select current_setting('application_name') as who, current_setting('jit') as jit,
               current_setting('enable_seqscan') as seqscan, current_setting('enable_hashjoin') as hashjoin,
               current_setting('lock_timeout') as lock
             from workspace_places where workspace_id = $1::uuid`,
            [id],
          );
          return rows[0];
        },
        { statement: 4000, lock: 2500 },
      );
    // The session on the node stays open; only the settings of the transaction end.
    for (let times = 0; times < 2; times++)
      expect(await readSession()).toEqual({
        who: expect.stringContaining('citus_internal'),
        ...{ jit: 'off', seqscan: 'off', hashjoin: 'off', lock: '2500ms' },
      });
    await pool.end();
  },
);

test.skipIf(citusUrl)('LEFT OUT: no Citus is tested, because CITUS_URL is not set', () => {});
